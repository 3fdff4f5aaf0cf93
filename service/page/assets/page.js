"use strict";
// Follows a log. Without it, the page is reloaded to follow.
const log = document.querySelector("[data-log]");

async function follow() {
  let { offset, line = "" } = log.dataset;
  let pause = 1000;
  for (;;) {
    try {
      const answer = await fetch(`${log.dataset.log}?offset=${offset}&line=${line || 0}`, { redirect: "manual" });
      if (answer.type === "opaqueredirect" || [403, 404, 410].includes(answer.status)) return;
      if (!answer.ok) throw new Error(answer.statusText);
      const atEnd = innerHeight + scrollY >= document.body.scrollHeight - 80;
      // Rows as the page has them: the server made the text harmless.
      log.insertAdjacentHTML("beforeend", await answer.text());
      offset = answer.headers.get("Runwarden-Log-Next");
      line = answer.headers.get("Runwarden-Log-Line");
      if (log.classList.contains("live")) log.scrollTop = log.scrollHeight;
      else if (atEnd) scrollTo(0, document.body.scrollHeight);
      if (answer.headers.get("Runwarden-Log-Grown") === "over") break;
      pause = 1000;
    } catch {
      await new Promise((resolve) => setTimeout(resolve, pause));
      pause = Math.min(pause * 2, 30000);
    }
  }
  const typed = [...document.querySelectorAll("textarea")].some((one) => one.value.trim());
  if ("reload" in log.dataset && !typed) location.reload();
}

if (log) follow();

"use strict";
// Follows a log. Without it, the page is reloaded to follow.
const log = document.querySelector("[data-log]");

// As terminal() in text.py does it.
function colour(words, text) {
  const parts = text.replace(/\x1b\[(?![0-9;]*m)[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[PX^_][^\x1b]*\x1b\\/g, "").replace(/^(?=\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:[\d.]+Z )/gm, "\x1b[0m").split(/\x1b\[([0-9;]*)m/);
  let bold = false, tint = "";
  parts.forEach((part, at) => {
    if (at % 2 === 0) {
      const piece = document.createElement("i");
      piece.className = `${bold ? "b" : ""} ${tint}`.trim();
      piece.textContent = part;
      if (part) words.append(piece.className ? piece : part);
      return;
    }
    const codes = part.split(";").map(Number);
    if (codes.includes(38) || codes.includes(48)) return;
    for (const code of codes) {
      if (code === 0) [bold, tint] = [false, ""];
      else if (code === 39) tint = "";
      else if (code === 1) bold = true;
      else if ((code >= 30 && code < 38) || (code >= 90 && code < 98)) tint = `t${code % 10}`;
    }
  });
}

function add(kind, text, failed) {
  const step = document.createElement("div");
  step.className = "step t-" + kind + (failed ? " bad" : "");
  if (kind !== "printed" && kind !== "log") {
    const label = document.createElement("span");
    label.className = "kind";
    label.textContent = kind;
    step.append(label, " ");
  }
  const words = document.createElement("pre");
  colour(words, text);
  step.append(words);
  log.append(step);
}

async function follow() {
  let offset = Number(log.dataset.offset);
  let pause = 1000;
  const decoder = new TextDecoder();
  for (;;) {
    try {
      const answer = await fetch(`${log.dataset.log}?form=steps&offset=${offset}&wait=25`, { redirect: "manual" });
      if (answer.type === "opaqueredirect" || answer.status === 404 || answer.status === 410) return;
      if (!answer.ok) throw new Error(answer.statusText);
      const atEnd = innerHeight + scrollY >= document.body.scrollHeight - 80;
      if (answer.headers.get("Runwarden-Log-Form") === "steps") {
        for (const step of (await answer.json()).steps) add(step.kind, step.text, step.failed);
      } else {
        const text = decoder.decode(await answer.arrayBuffer(), { stream: true });
        if (text) add("printed", text.replace(/\n$/, ""), false);
      }
      offset = Number(answer.headers.get("Runwarden-Log-Next"));
      if (log.classList.contains("live")) log.scrollTop = log.scrollHeight;
      else if (atEnd) scrollTo(0, document.body.scrollHeight);
      if (answer.headers.get("Runwarden-Log-Ended") === "true" && offset >= Number(answer.headers.get("Runwarden-Log-Size"))) break;
      pause = 1000;
    } catch {
      await new Promise((resolve) => setTimeout(resolve, pause));
      pause = Math.min(pause * 2, 30000);
    }
  }
  if ("reload" in log.dataset) location.reload();
}

if (log) follow();

"use strict";

// xterm.js hears keys only while its own input has the focus: it gets it as soon as something is drawn, and whenever the
// tab comes back.
function takeKeys() {
  document.querySelector(".xterm-helper-textarea")?.focus();
}

new MutationObserver(takeKeys).observe(document.body, { attributeFilter: ["class"] });
window.addEventListener("focus", takeKeys);

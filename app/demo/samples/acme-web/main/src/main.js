const hour = new Date().getHours();
const greeting = hour < 12 ? "Good morning" : "Good day";
document.querySelector("#greeting").textContent = `${greeting}. Here is what Acme makes.`;

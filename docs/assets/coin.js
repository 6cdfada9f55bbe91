// A coin's posterior, drawn as counts change.
(() => {
  const box = document.getElementById("coin");
  if (!box) return;
  const fields = [["a", "Prior heads", 1, 20, 1], ["b", "Prior tails", 1, 20, 1], ["h", "Heads seen", 0, 50, 7], ["t", "Tails seen", 0, 50, 3]];
  box.innerHTML = '<svg viewBox="0 0 640 260" role="img" aria-label="Prior and posterior density of the probability of heads"></svg>' +
    fields.map(([id, name, low, high, value]) => `<label>${name} <input type="range" id="coin-${id}" min="${low}" max="${high}" value="${value}"> <output></output></label>`).join("") +
    '<p aria-live="polite"></p>';
  const svg = box.querySelector("svg");
  const beta = (a, b) => {
    const logs = Array.from({length: 199}, (_, i) => (a - 1) * Math.log((i + 1) / 200) + (b - 1) * Math.log(1 - (i + 1) / 200));
    const top = Math.max(...logs), raw = logs.map((v) => Math.exp(v - top)), sum = raw.reduce((s, v) => s + v, 0) / 200;
    return raw.map((v) => v / sum);
  };
  const draw = () => {
    const value = Object.fromEntries(fields.map(([id]) => [id, Number(document.getElementById(`coin-${id}`).value)]));
    for (const [id] of fields) document.getElementById(`coin-${id}`).nextElementSibling.textContent = value[id];
    const prior = beta(value.a, value.b), posterior = beta(value.a + value.h, value.b + value.t);
    const top = Math.max(...posterior, ...prior) * 1.05;
    const path = (d) => d.map((v, i) => `${i ? "L" : "M"}${30 + (i + 1) * 2.9},${230 - 210 * v / top}`).join("");
    svg.innerHTML = `<line x1="30" x2="610" y1="230" y2="230" stroke="currentColor"/>` +
      [0, .25, .5, .75, 1].map((v) => `<text x="${30 + 580 * v}" y="250" text-anchor="middle" font-size="14" fill="currentColor">${v}</text>`).join("") +
      `<path d="${path(prior)}" fill="none" stroke="currentColor" stroke-dasharray="5 4" opacity=".7"/>` +
      `<path d="${path(posterior)}" fill="none" stroke="#5c6bc0" stroke-width="3"/>`;
    const a = value.a + value.h, b = value.b + value.t, mean = a / (a + b), sd = Math.sqrt(mean * (1 - mean) / (a + b + 1));
    box.querySelector("p").textContent = `Dashed: prior. Solid: posterior, mean ${mean.toFixed(3)}, standard deviation ${sd.toFixed(3)}.`;
  };
  box.addEventListener("input", draw);
  draw();
})();

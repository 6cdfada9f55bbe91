// Calls to this server and to nothing else, by URLs relative to the page, so that it works behind a proxy's path.
const BASE = "studio/api/";
const TOKEN = "bayesify-token";

function headers() {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { Authorization: `Bearer ${token}` } : {};
}

export class ApiError extends Error {
  constructor(message, status) { super(message); this.status = status; }
}

async function checked(response) {
  if (response.ok) return response;
  let words = `the server answered ${response.status}`;
  try {
    const body = await response.json();
    const said = body.detail ?? body.error;
    if (typeof said === "string") words = said;
    else if (Array.isArray(said)) words = said.map((part) => `${(part.loc ?? []).slice(1).join(".")}: ${part.msg}`).join("; ");
  } catch { /* no JSON: the status alone has to do */ }
  throw new ApiError(words, response.status);
}

export const GONE = "the server does not answer: is bayesify serve still running?";

async function ask(path, options, tried = null) {
  let response;
  try {
    response = await fetch(BASE + path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(GONE, 0);
  }
  if (response.status === 401) {
    // Another call may have been given the right one meanwhile.
    const kept = sessionStorage.getItem(TOKEN);
    const sent = options.headers?.Authorization?.slice("Bearer ".length) ?? null;
    const token = kept && kept !== sent ? kept : await askForToken(sent !== null || tried !== null);
    if (token) {
      sessionStorage.setItem(TOKEN, token);
      return ask(path, { ...options, headers: { ...options.headers, ...headers() } }, token);
    }
  }
  return checked(response);
}

function query(values) {
  const given = Object.entries(values).filter(([, value]) => value !== null && value !== undefined);
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

export async function get(path, values = {}, signal) {
  return (await ask(path + query(values), { headers: headers(), signal })).json();
}

export async function post(path, body, signal) {
  const options = { method: "POST", headers: { "Content-Type": "application/json", ...headers() }, body: JSON.stringify(body), signal };
  return (await ask(path, options)).json();
}

export async function blob(path, values = {}) {
  return (await ask(path + query(values), { headers: headers() })).blob();
}

// Server-sent events of a POST, each given to `heard(kind, content)`.
export async function stream(path, body, heard, signal) {
  const options = { method: "POST", headers: { "Content-Type": "application/json", ...headers() }, body: JSON.stringify(body), signal };
  const reader = (await ask(path, options)).body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "", ended = false;
  for (;;) {
    let value, done;
    try {
      ({ value, done } = await reader.read());
    } catch (error) {
      if (error.name === "AbortError") throw error;
      done = true;
    }
    // A stream says itself that it is over: one that just stops was cut off.
    if (done && !ended) throw new ApiError(`training was interrupted: ${GONE}`, 0);
    if (done) return;
    held += value;
    const events = held.split("\n\n");
    held = events.pop();
    for (const event of events) {
      const lines = Object.fromEntries(event.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]));
      if (lines.event === "done" || lines.event === "problem") ended = true;
      if (lines.data) heard(lines.event, JSON.parse(lines.data));
    }
  }
}

// The runs, waiting while the server is still reading them.
let known = null;
export async function models(waiting) {
  for (;;) {
    try {
      known ??= await get("models");
      return known;
    } catch (error) {
      if (error.status !== 503) throw error;
      waiting?.();
      await new Promise((resume) => setTimeout(resume, 400));
    }
  }
}

// After a visitor's own run has been added.
export const forgetModels = () => { known = null; };

let asking = null;
function askForToken(wrong) {
  asking ??= new Promise((resolve) => {
    const dialog = document.createElement("dialog");
    const form = document.createElement("form");
    form.method = "dialog";
    const label = document.createElement("label");
    label.className = "field";
    label.textContent = "Token of this server";
    const input = document.createElement("input");
    input.type = "password";
    input.autocomplete = "off";
    const send = document.createElement("button");
    send.className = "main";
    send.textContent = "Continue";
    label.append(input);
    if (wrong) {
      const said = document.createElement("p");
      said.className = "problem";
      said.setAttribute("role", "alert");
      said.textContent = "The token is wrong. Try again.";
      form.append(said);
    }
    form.append(label, send);
    dialog.append(form);
    document.body.append(dialog);
    send.type = "button";
    send.onclick = () => dialog.close();
    form.onsubmit = (event) => { event.preventDefault(); dialog.close(); };
    dialog.onclose = () => { dialog.remove(); asking = null; resolve(input.value); };
    dialog.showModal();
  });
  return asking;
}

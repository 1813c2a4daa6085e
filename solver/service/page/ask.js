// Questions to the service, one at a time of each sort: while one is under way only the newest waits.

const TOKEN = "ppsolve token";

// The token of a service that wants one; this tab alone keeps it.
export function setToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

function headers(more) {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { ...more, Authorization: `Bearer ${token}` } : more;
}

export class Refusal extends Error {
  constructor(problem, status) {
    super(problem.detail || problem.title || `The service answered with status ${status}.`);
    this.field = problem.field;
    this.status = status;
  }
}

async function reached(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal({ detail: "The service does not answer; it may have been stopped." });
  }
}

export async function send(path, { method = "POST", body, signal } = {}) {
  const options = { method, signal, headers: headers({}) };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["Content-Type"] = "application/json";
  }
  const response = await reached(path, options);
  const text = await response.text();
  let answer = {};
  try {
    answer = text ? JSON.parse(text) : {};
  } catch {
    answer = { detail: text.slice(0, 200) };
  }
  if (!response.ok) throw new Refusal(answer, response.status);
  return answer;
}

// Calls `listener` with the data of each server-sent event, until the stream ends.
export async function news(path, listener) {
  const response = await reached(path, { headers: headers({ Accept: "text/event-stream" }) });
  if (!response.ok) throw new Refusal({}, response.status);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (text + value).split(/\r?\n\r?\n/);
    text = events.pop();
    for (const event of events) {
      const data = event.split(/\r?\n/).filter((line) => line.startsWith("data:")).map((line) => line.slice(5));
      if (data.length) listener(JSON.parse(data.join("\n")));
    }
  }
}

const PATIENCE = 400; // Milliseconds after which a newer question no longer waits for an older one.

// Asks the newest question as soon as the one before is answered. An answer to an old question is
// still shown while a slider moves: pictures that follow late are better than none.
export class Newest {
  constructor(ask, show, fail) {
    Object.assign(this, { ask, show, fail, next: null, running: null });
  }

  put(question) {
    this.next = question;
    if (!this.running) this.run();
    else if (performance.now() - this.running.since > PATIENCE) this.running.stop.abort();
  }

  cancel() {
    this.next = null;
    this.running?.stop.abort();
  }

  async run() {
    while (this.next !== null) {
      const question = this.next;
      this.next = null;
      this.running = { stop: new AbortController(), since: performance.now() };
      try {
        const answer = await this.ask(question, this.running.stop.signal);
        if (!this.running.stop.signal.aborted) this.show(answer, question);
      } catch (error) {
        if (error.name !== "AbortError") this.fail(error, question);
      }
    }
    this.running = null;
  }
}

// Prove it: a job of the service, whose value and bound are drawn as they come.

import { news, send } from "./ask.js";
import { byId, figure, percent, tell } from "./dom.js";
import { plot } from "./plot.js";
import { PROVED, changed, state } from "./state.js";

const MOST_SECONDS = 600;
const OPEN = new Set(["queued", "running"]);
const PAUSE = 300; // Milliseconds before a stream is asked for again.
let run = null;

const NEAR = 0.8; // Share of the best value from which bounds are drawn: the first ones are far below.

function draw(events, unit) {
  const best = events.at(-1)?.incumbent ?? 0;
  const line = (name) => events.filter((event) => event[name] > NEAR * best)
    .map((event) => [event.seconds, event[name]]);
  const picture = plot({
    lines: [{ points: line("bound"), className: "bound", isStep: true },
      { points: line("incumbent"), className: "value", isStep: true }],
    label: `makespan (${unit})`, below: "seconds", title: "best value and lower bound over time", width: 640,
  });
  byId("proof").replaceChildren(picture);
  byId("proof").dataset.events = events.length;
}

function say(text) {
  byId("proof-state").textContent = text;
  byId("proof-section").hidden = !text;
}

function heard(event) {
  const last = run.events.at(-1) ?? {};
  const news = { seconds: event.seconds, incumbent: event.incumbent ?? last.incumbent,
    bound: event.bound ?? last.bound };
  run.events.push(news);
  const value = news.incumbent === undefined ? "no schedule yet" : `best ${figure(news.incumbent)}`;
  const bound = news.bound === undefined ? "" : `, lower bound ${figure(news.bound)}`;
  say(`${event.seconds.toFixed(1)} s: ${event.source ?? event.event}: ${value}${bound}`);
  if (!run.isDrawing) {
    run.isDrawing = true;
    const { events, unit } = run;
    requestAnimationFrame(() => {
      if (!run) return;
      run.isDrawing = false;
      draw(events, unit);
    });
  }
}

function finish(job) {
  const { events, unit, asked } = run;
  close();
  const result = job.result;
  if (!result) {
    say("");
    tell(job.error ?? `The job ended without a result: it is ${job.state}.`);
    return;
  }
  const last = { seconds: result.wall_seconds, incumbent: result.value, bound: result.bound };
  draw([...events, last], unit);
  if (asked !== JSON.stringify(state.instance)) {
    say("The pipeline has changed since: this proof is of the one before.");
    return;
  }
  state.proof = result;
  if (result.schedule) state.shown = [state.shown[0], PROVED];
  say(verdict(result, unit));
  changed();
}

function verdict(result, unit) {
  const seconds = `after ${result.wall_seconds.toFixed(1)} s`;
  if (result.value === null || result.value === undefined) {
    return result.status === "INFEASIBLE" ? `No schedule fits the memory: proved ${seconds}.`
      : `No schedule was found ${seconds}.`;
  }
  const value = `${figure(result.value)} ${unit}`;
  if (result.gap === 0) return `Proved ${seconds}: ${value} is optimal.`;
  return `Best ${seconds}: ${value}. No schedule is more than ${percent(result.gap)} shorter.`;
}

function close() {
  run = null;
  byId("prove").disabled = false;
  byId("stop").hidden = true;
}

async function start() {
  const seconds = Number(byId("seconds").value);
  const isRight = seconds > 0 && seconds <= MOST_SECONDS;
  byId("seconds").setAttribute("aria-invalid", String(!isRight));
  if (!isRight) {
    tell(`A proof takes from 1 to ${MOST_SECONDS} seconds.`);
    return;
  }
  tell(null);
  byId("prove").disabled = true;
  const instance = structuredClone(state.instance);
  try {
    const { id } = await send("jobs", { body: { task: "optimize", instance, options: { time_limit: seconds } } });
    await follow(id, instance);
  } catch (error) {
    close();
    tell(error.message);
  }
}

// Listens until the job has ended. A stream that breaks off is asked for again.
async function follow(id, instance) {
  const path = `jobs/${encodeURIComponent(id)}`;
  run = { path, events: [], unit: instance.time_unit ?? "us", asked: JSON.stringify(instance) };
  byId("stop").hidden = false;
  say("The job waits for a free worker.");
  for (;;) {
    run.events = [];
    await news(`${path}/events`, (event) => {
      if (typeof event.seconds === "number") heard(event);
    });
    const job = await send(path, { method: "GET" });
    if (!OPEN.has(job.state)) {
      finish(job);
      return;
    }
    await new Promise((done) => { setTimeout(done, PAUSE); });
  }
}

export function makeProof() {
  byId("prove").addEventListener("click", start);
  byId("stop").addEventListener("click", async () => {
    if (!run) return;
    say("stopping");
    try {
      await send(run.path, { method: "DELETE" });
    } catch (error) {
      tell(error.message);
    }
  });
}

// Another pipeline: what is drawn is no longer about it.
export function forgetProof() {
  if (run || state.proof) return;
  byId("proof").replaceChildren();
  delete byId("proof").dataset.events;
  say("");
}

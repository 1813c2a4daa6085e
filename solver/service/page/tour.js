// The guided tour: six steps, each of which sets the pipeline and says what to look at.

import { byId } from "./dom.js";
import { FIRST, replace } from "./state.js";

const base = (changes) => ({ ...structuredClone(FIRST), p2p: { latency: 0 }, ...changes });
const EQUAL = { forward: 100, backward_input: 100, backward_weight: 100 };
const WHOLE = { forward: 100, backward: 200 };
const FREE = { capacity: "2p", activation: 1 };

export const STEPS = [
  {
    title: "The bubble",
    text: "A model is cut into four stages on four devices. A micro-batch passes them forward (F) and then "
      + "backward (B). A device waits until the one before it is done, so it is idle at the start and at the end: "
      + "that is the bubble. Move the slider of micro-batches: the more there are, the smaller is its share.",
    instance: base({ name: "bubble", times: WHOLE, num_microbatches: 4, memory: FREE }),
    shown: ["gpipe", "1f1b"], look: "microbatches",
  },
  {
    title: "1F1B",
    text: "GPipe (above) runs all forwards first and keeps the activations of every micro-batch. 1F1B (below) runs "
      + "one backward after each forward as soon as it can. Both take equally long, but the strips under the lanes "
      + "show that 1F1B holds at most four activations on the first device, and GPipe holds eight.",
    instance: base({ name: "1f1b", times: WHOLE, memory: FREE }),
    shown: ["gpipe", "1f1b"], look: "chart",
  },
  {
    title: "Zero bubble",
    text: "A backward has two halves. The stage before needs only the gradient of the input (I); the gradient of the "
      + "weights (W) can wait. ZB-H1 (below) sends I on at once and fills idle time with W. The makespan falls, and "
      + "the memory stays that of 1F1B. Untick Split backward to see what it gains.",
    instance: base({ name: "zero bubble", times: EQUAL, memory: FREE }),
    shown: ["1f1b", "zb-h1"], look: "split",
  },
  {
    title: "Memory",
    text: "ZB-H2 (above) has hardly a bubble, because it starts more forwards early; each holds an activation. The "
      + "limit here is 1p, what 1F1B holds, so ZB-H2 does not fit. Raise the memory to 1.75p: it fits, and it is the "
      + "best. The first curve under What if shows how much time each step of memory saves.",
    instance: base({ name: "memory", times: EQUAL, memory: { capacity: "1p", activation: 1 },
      p2p: { latency: 5 } }),
    shown: ["zb-h2", "zb-h1"], look: "capacity",
  },
  {
    title: "Placement",
    text: "Devices may hold several stages. In a V the model goes down the devices and back up, so that the first "
      + "device also has the last stage: its first backward comes early, and all devices hold equally much. ZB-V "
      + "(above) fills the bubble and holds as much as 1F1B; V-Half (below) holds less and takes longer.",
    instance: base({ name: "placement", times: { forward: 50, backward_input: 50, backward_weight: 50 },
      placement: "vshape", memory: { capacity: "1p", activation: 1 }, p2p: { latency: 2 } }),
    shown: ["zbv", "v-half"], look: "placement",
  },
  {
    title: "Proof",
    text: "Is there anything better? The dashed line is a lower bound: no schedule ends before it. Where the best "
      + "schedule meets it, that schedule is optimal. Here the stages are unequal, and a gap is left. Press Prove it: "
      + "a search finds better schedules and better bounds until they meet, and draws how.",
    instance: base({ name: "proof", times: { forward: [100, 80, 120, 90], backward_input: [110, 90, 130, 100],
      backward_weight: [60, 70, 50, 80] }, p2p: { latency: 5 } }),
    shown: ["1f1b", "zb-h1"], look: "prove",
  },
];

let at = null;

export function showStep(number) {
  at = Math.min(Math.max(1, Math.trunc(number)), STEPS.length);
  const step = STEPS[at - 1];
  byId("tour").hidden = false;
  byId("tour-place").textContent = `Step ${at} of ${STEPS.length}`;
  byId("tour-title").textContent = step.title;
  byId("tour-text").textContent = step.text;
  byId("tour-back").disabled = at === 1;
  byId("tour-next").textContent = at === STEPS.length ? "Done" : "Next";
  for (const marked of document.querySelectorAll(".looked-at")) marked.classList.remove("looked-at");
  const place = byId(step.look);
  (place?.closest(".control") ?? place)?.classList.add("looked-at");
  replace(step.instance, step.shown);
  byId("tour-title").focus({ preventScroll: true });
  byId("tour").scrollIntoView({ block: "nearest" });
}

function end() {
  at = null;
  byId("tour").hidden = true;
  for (const marked of document.querySelectorAll(".looked-at")) marked.classList.remove("looked-at");
  byId("tour-start").focus();
}

export function makeTour() {
  byId("tour-start").addEventListener("click", () => showStep(1));
  byId("tour-back").addEventListener("click", () => showStep(at - 1));
  byId("tour-next").addEventListener("click", () => (at === STEPS.length ? end() : showStep(at + 1)));
  byId("tour-end").addEventListener("click", end);
  byId("tour").addEventListener("keydown", (event) => {
    if (event.key === "Escape") end();
  });
}

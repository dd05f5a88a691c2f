// Figures of a time, from two states of the counters.
const MINUTE = 60, KEPT = 300;
const LATENCIES = { ttft_s: "first token", itl_s: "next token", e2e_s: "whole answer",
  queue_s: "queue" };

// The value below which a share of what two cumulative histograms differ by lies.
function quantile(before, after, share) {
  const total = after.count - before.count;
  if (total <= 0) return null;
  let below = 0, from = 0;
  for (let i = 0; i < after.buckets.length; i++) {
    const [bound, count] = after.buckets[i];
    const seen = count - before.buckets[i][1];
    if (seen >= share * total) {
      const inside = seen - below;
      return from + (bound - from) * (inside ? (share * total - below) / inside : 1);
    }
    below = seen;
    from = bound;
  }
  return from;
}

function rate(before, after, seconds) {
  return seconds > 0 ? Math.max(0, after - before) / seconds : null;
}

function share(before, after, part, whole) {
  const all = after[whole] - before[whole];
  return all > 0 ? (after[part] - before[part]) / all : null;
}

function ended(model) {
  return Object.values(model.finished).reduce((sum, one) => sum + one, 0);
}

function number(value, unit = "") {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const digits = value >= 100 ? 0 : value >= 10 ? 1 : 2;
  const shown = value === 0 ? "0" : value.toLocaleString("en", { maximumFractionDigits: digits });
  return unit ? `${shown}\u202f${unit}` : shown; // a blank that does not break
}

function percent(value) {
  return value === null ? "–" : number(100 * value, "%");
}

function duration(seconds) {
  if (seconds === null) return "–";
  return seconds < 1 ? number(1000 * seconds, "ms") : number(seconds, "s");
}

function tilesOf(before, after, seconds) {
  const per = (name) => rate(before[name], after[name], seconds);
  const met = rate(before.within_objectives, after.within_objectives, seconds);
  const requests = after.objective_requests - before.objective_requests;
  const held = requests ? (after.within_objectives - before.within_objectives) / requests : null;
  const goodput = after.objectives ? `${number(met, "/s")}, ${percent(held)}` : "–";
  return {
    "output": number(per("output_tokens"), "tok/s"),
    "input": number(per("prompt_tokens"), "tok/s"),
    "answers": number(rate(ended(before), ended(after), seconds), "/s"),
    "goodput": goodput,
    "running": number(after.running),
    "queue": number(after.waiting),
    "KV use": percent(after.kv_use),
    "prefix hits": percent(share(before, after, "prefix_hit_tokens", "prefix_lookup_tokens")),
    "drafts accepted": percent(share(before, after, "accepted_tokens", "drafted_tokens")),
  };
}

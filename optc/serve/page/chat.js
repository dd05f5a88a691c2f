// The chat box: a stream of the server's own API.
let messages = [], asking = null;

function line(kind, text = "") {
  const one = made("p", text, kind);
  byId("talk").append(one);
  one.scrollIntoView({ block: "nearest" });
  return one;
}

// Data of server-sent events, as they come.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) if (part.startsWith("data: ")) yield part.slice(6);
  }
}

function asked(text) {
  const model = chosen(), usage = { stream: true, stream_options: { include_usage: true } };
  const state = modelOf(states.at(-1));
  if (!state.chats) return ["v1/completions", { model, prompt: text, max_tokens: 256, ...usage }];
  return ["v1/chat/completions", { model, messages, ...usage }];
}

async function answer(text, signal) {
  const began = performance.now(), [path, body] = asked(text);
  const response = await fetch(path, { method: "POST", signal, body: JSON.stringify(body),
    headers: headers({ "content-type": "application/json" }) });
  if (!response.ok) throw new Error((await response.json()).error.message);
  let said = null, thought = null, first = null;
  for await (const data of events(response.body)) {
    if (data === "[DONE]") break;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Error(chunk.error.message);
    if (chunk.usage) tell(chunk.usage.completion_tokens, began, first);
    const choice = (chunk.choices ?? [])[0];
    if (!choice) continue;
    const reasoning = choice.delta?.reasoning ?? "";
    const content = choice.text ?? choice.delta?.content ?? "";
    if (reasoning || content) first ??= performance.now();
    if (reasoning) (thought ??= line("thought")).textContent += reasoning;
    if (content) (said ??= line("assistant")).textContent += content;
    byId("talk").scrollTop = byId("talk").scrollHeight;
  }
  messages.push({ role: "assistant", content: said?.textContent ?? "" });
}

function tell(tokens, began, first) {
  const all = (performance.now() - began) / 1000;
  const wait = first === null ? null : (first - began) / 1000;
  const speed = wait === null ? null : tokens / Math.max(all - wait, 1e-3);
  byId("figures").textContent =
    `${tokens} tokens, first after ${duration(wait)}, ${number(speed, "tok/s")}`;
}

byId("chat").addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = byId("words").value;
  if (asking || !text || !states.length) return;
  byId("words").value = "";
  messages.push({ role: "user", content: text });
  line("user", text);
  asking = new AbortController();
  byId("stop").hidden = false;
  byId("send").disabled = true;
  try {
    await answer(text, asking.signal);
  } catch (error) {
    messages.pop();
    line("error", error.name === "AbortError" ? "stopped" : error.message);
  } finally {
    asking = null;
    byId("stop").hidden = true;
    byId("send").disabled = false;
  }
});
byId("words").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  byId("chat").requestSubmit();
});
byId("stop").addEventListener("click", () => asking?.abort());
byId("clear").addEventListener("click", () => {
  messages = [];
  byId("talk").replaceChildren();
  byId("figures").textContent = "";
});

// Chats by OpenAI's client for Node: URL MODEL.
import OpenAI from "openai";

const [url, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "-" });
const messages = [{ role: "user", content: "hi" }];
const stream = await client.chat.completions.create({ model, messages, max_tokens: 24, stream: true });
for await (const chunk of stream) process.stdout.write(chunk.choices[0]?.delta?.content ?? "");

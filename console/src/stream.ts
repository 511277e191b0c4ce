// Server-sent events, read by hand: EventSource can send no key. Source: WHATWG HTML, section 9.2.
import type { StreamEvent } from "./wire";

/** The most characters of one event: the service sends none that is longer than a body may be. */
const MAX_EVENT_CHARS = 64 << 20;

/** The events of an answer, as they come, but those that keep it alive. Ends where the service says so or the connection ends. */
export async function* eventsOf(answer: Response): AsyncGenerator<StreamEvent> {
  if (!answer.body) return;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    while (true) {
      const { value, done } = await reader.read();
      if (done) return;
      rest += value;
      const blocks = rest.split("\n\n");
      rest = blocks.pop() ?? "";
      if (rest.length > MAX_EVENT_CHARS) throw new RangeError("An event of the stream is too long.");
      for (const block of blocks) {
        const data = block
          .split("\n")
          .filter((line) => line.startsWith("data:"))
          .map((line) => line.slice(5).trimStart())
          .join("\n");
        if (!data || data === "[DONE]") continue;
        const event = JSON.parse(data) as StreamEvent;
        if (event.type !== "keepalive") yield event;
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined); // the connection may have ended by itself
  }
}

const TERMINAL = new Set(["response.completed", "response.incomplete", "response.failed", "response.cancelled", "error"]);

/** Whether nothing follows this event. */
export const isTerminal = (event: StreamEvent): boolean => TERMINAL.has(event.type);

// Saying something to a background response while it waits or runs: it ends soon, and another one goes on with that.
import { useState } from "preact/hooks";
import { steer } from "../api";
import type { Answer } from "../wire";
import { Asking, Words } from "./dialog";

/** Whether something may be said to a response while it is under way; the service knows the rest. */
export const isSteerable = (answer: Answer): boolean => Boolean(answer.background) && !answer.conversation;

/** The response that goes on with what was said to this one, once it has ended. */
export function successor(answer: Answer): string | null {
  const id = extension(answer)["succeeded_by"];
  return typeof id === "string" ? id : null;
}

/** How much of what was said to a response had no effect. */
export function unheard(answer: Answer): number {
  const failed = extension(answer)["failed_steers"];
  return Array.isArray(failed) ? failed.length : 0;
}

function extension(answer: Answer): Record<string, unknown> {
  const found = answer["harmonium"];
  return found && typeof found === "object" ? (found as Record<string, unknown>) : {};
}

export function Steering({ id, onClose }: { id: string; onClose: () => void }) {
  const [text, setText] = useState("");
  return (
    <Asking
      title="Message to this response"
      label="Send"
      act={() => steer(id, text)}
      done="Sent. The response ends soon, and a new one goes on with your message."
      isReady={text.trim() !== ""}
      onClose={onClose}
    >
      <p class="hint">This response ends at the next point where it can, and keeps what it said. A new one goes on with your message.</p>
      <Words aria-label="New message" rows={3} value={text} onText={setText} />
    </Asking>
  );
}

// Saying something to a background response while it waits or runs: it ends soon, and another one goes on with that.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { steer } from "../api";
import { said } from "../state";
import type { Answer } from "../wire";
import { Failure, wordsOf } from "./text";

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
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const box = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => box.current?.focus(), []);
  async function send(event: SubmitEvent) {
    event.preventDefault();
    if (busy || !text.trim()) return;
    setBusy(true);
    setError("");
    try {
      await steer(id, text);
      said.value = "It was said. The response ends soon, and another one goes on with it.";
      onClose();
    } catch (caught) {
      setError(wordsOf(caught));
      setBusy(false);
    }
  }
  return (
    <form class="composer" aria-label="Say something to it" onSubmit={send}>
      <header>
        <h2>Say something to it</h2>
        <button type="button" class="quiet" onClick={onClose}>
          Close
        </button>
      </header>
      <p class="hint">The response ends at its next boundary, with what it has said. Another one goes on from there with your words.</p>
      <textarea
        ref={box}
        aria-label="What to say to it"
        rows={3}
        value={text}
        dir="auto"
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.currentTarget.form?.requestSubmit();
        }}
      />
      <Failure error={error} />
      <footer>
        <span />
        <button type="submit" class="main" disabled={busy || !text.trim()}>
          Say it
        </button>
      </footer>
    </form>
  );
}

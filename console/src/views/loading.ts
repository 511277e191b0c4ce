// Something that is loaded: anew when its key changes or it is asked to, and again and again while it says so; and something
// that is done when somebody asks for it.
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "../api";
import { isAborted, wordsOf } from "./text";

/** When a service that didn't answer is asked again, where it was asked again and again before. */
const AWAY_MS = 5_000;

export interface Loaded<T> {
  value: T | null;
  error: string;
  again: () => void;
}

/**
 * What `load` gives for this `key`. It is loaded again `every` so many milliseconds, 0 for never, while the page is seen; also
 * where the service is away or has no room meanwhile, or its answer breaks off, but not where it refuses. Nothing is left of
 * what is gone.
 */
export function useLoaded<T>(key: string, load: (signal: AbortSignal) => Promise<T>, every: (value: T) => number): Loaded<T> {
  const [state, setState] = useState<{ key: string; value: T | null; error: string }>({ key, value: null, error: "" });
  const [asked, setAsked] = useState(0);
  const latest = useRef({ load, every });
  latest.current = { load, every };
  const pauses = useRef({ key, ms: 0 });
  useEffect(() => {
    const stop = new AbortController();
    let timer = 0;
    if (pauses.current.key !== key) pauses.current = { key, ms: 0 };
    const pause = pauses.current;
    async function once(): Promise<void> {
      try {
        const value = await latest.current.load(stop.signal);
        setState({ key, value, error: "" });
        pause.ms = latest.current.every(value);
      } catch (error) {
        if (isAborted(error)) return;
        const isGone = error instanceof ApiError && error.status === 404;
        setState((before) => ({ key, value: before.key === key && !isGone ? before.value : null, error: wordsOf(error) }));
        const refuses = error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 429;
        pause.ms = pause.ms && !refuses ? AWAY_MS : 0;
      }
      if (pause.ms && !stop.signal.aborted) timer = window.setTimeout(next, pause.ms);
    }
    function next(): void {
      if (document.hidden) document.addEventListener("visibilitychange", next, { once: true, signal: stop.signal });
      else void once();
    }
    void once();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [key, asked]);
  const again = useCallback(() => setAsked((before) => before + 1), []);
  return { value: state.key === key ? state.value : null, error: state.key === key ? state.error : "", again };
}

export interface Doing {
  busy: boolean;
  error: string;
  attempt: (act: () => Promise<unknown>) => Promise<void>;
}

/** Whether something is being done, and why it failed when it was last attempted. */
export function useDoing(): Doing {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  async function attempt(act: () => Promise<unknown>): Promise<void> {
    setBusy(true);
    setError("");
    try {
      await act();
    } catch (caught) {
      if (!isAborted(caught)) setError(wordsOf(caught));
    }
    setBusy(false);
  }
  return { busy, error, attempt };
}

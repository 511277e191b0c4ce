// The keys of a project. A key's value is in the answer that made it and nowhere else: it is shown once, and kept nowhere.
import { useRef, useState } from "preact/hooks";
import { said } from "../state";
import { useLoaded } from "../views/loading";
import { Ago, Copy, Failure, Line, wordsOf } from "../views/text";
import { LimitsForm } from "./limits";
import { Confirm, Day, Dialog, Pages } from "./pages";
import { type Key, type WishedKey, accounts, createAccount, createKey, keys, limitKey, revokeKey } from "./requests";

const SCOPES = [
  "api.all.read",
  "api.responses.read",
  "api.responses.write",
  "api.conversations.read",
  "api.conversations.write",
  "api.containers.read",
  "api.containers.write",
  "api.model.read",
  "api.model.request",
];

const DAY_SECONDS = 86_400;
const ENDS: [string, number][] = [
  ["never", 0],
  ["in a week", 7],
  ["in 30 days", 30],
  ["in 90 days", 90],
  ["in a year", 365],
];

interface Shown {
  project: string;
  version: number;
  isOver: boolean;
  onChanged: () => void;
}

export function Keys({ project, version, isOver, onChanged }: Shown) {
  const [making, setMaking] = useState(false);
  return (
    <section>
      <header class="heading">
        <h2>API keys</h2>
        <span class="space" />
        {!isOver && (
          <button class="main" onClick={() => setMaking(true)}>
            New key…
          </button>
        )}
      </header>
      <Pages
        what="API keys"
        version={version}
        load={(after, signal) => keys(project, after, signal)}
        head={
          <tr>
            <th scope="col">Name</th>
            <th scope="col">Value</th>
            <th scope="col">Account</th>
            <th scope="col">Scopes</th>
            <th scope="col">Expires</th>
            <th scope="col">Last used</th>
            <th scope="col">
              <span class="unshown">Actions</span>
            </th>
          </tr>
        }
        row={(key, again) => (
          <Row key={key.id} project={project} shown={key} isOver={isOver} onLimited={again} onRevoked={onChanged} />
        )}
        empty={<p>No keys yet. Whoever has one may use this project, and sees nothing of any other.</p>}
      />
      {making && <NewKey project={project} onMade={onChanged} onClose={() => setMaking(false)} />}
    </section>
  );
}

interface RowShown {
  project: string;
  shown: Key;
  isOver: boolean;
  onLimited: () => void;
  onRevoked: () => void;
}

function Row({ project, shown, isOver, onLimited, onRevoked }: RowShown) {
  const [ending, setEnding] = useState(false);
  const [limiting, setLimiting] = useState(false);
  const expired = shown.expires_at !== null && shown.expires_at * 1000 < Date.now();
  return (
    <tr>
      <th scope="row">
        <Line text={shown.name} />
      </th>
      <td class="mono">
        <Line text={shown.redacted_value} />
      </td>
      <td>{shown.owner.service_account ? <Line text={shown.owner.service_account.name} /> : "–"}</td>
      <td class="scopes">{shown.scopes.length ? <Line text={shown.scopes.join(", ")} /> : "all"}</td>
      <td class={expired ? "over" : ""}>
        {shown.expires_at === null ? (
          "never"
        ) : (
          <>
            {expired && "expired "}
            <Day at={shown.expires_at} />
          </>
        )}
      </td>
      <td>{shown.last_used_at === null ? "never" : <Ago at={shown.last_used_at} />}</td>
      <td class="act">
        {!isOver && !expired && (
          <button aria-label={`Limit the key ${shown.redacted_value}`} onClick={() => setLimiting(true)}>
            Limits…
          </button>
        )}{" "}
        {!isOver && (
          <button class="danger" aria-label={`Revoke the key ${shown.redacted_value}`} onClick={() => setEnding(true)}>
            Revoke…
          </button>
        )}
        {limiting && (
          <LimitsForm
            title={
              <>
                Limits of <Line text={shown.redacted_value} />
              </>
            }
            hint="They hold beside those of the project. Where one is empty, there is none."
            known={shown.limits ?? {}}
            save={(all) => limitKey(project, shown.id, all)}
            onDone={onLimited}
            onClose={() => setLimiting(false)}
          />
        )}
        {ending && (
          <Confirm
            title={
              <>
                Revoke <Line text={shown.redacted_value} />?
              </>
            }
            meaning="It opens nothing any more within a second. It can't be taken back."
            label="Revoke"
            act={() => revokeKey(project, shown.id)}
            onDone={() => {
              said.value = "The key is revoked.";
              onRevoked();
            }}
            onClose={() => setEnding(false)}
          />
        )}
      </td>
    </tr>
  );
}

interface Making {
  project: string;
  onMade: () => void;
  onClose: () => void;
}

function NewKey({ project, onMade, onClose }: Making) {
  const box = useRef<HTMLInputElement>(null);
  const [value, setValue] = useState("");
  return (
    <Dialog label="new-key" onClose={onClose} first={() => box.current} stays={value !== ""}>
      {value ? (
        <Made value={value} onClose={onClose} />
      ) : (
        <KeyForm
          box={box}
          project={project}
          onClose={onClose}
          onMade={(made) => {
            setValue(made);
            said.value = "The key is created. Its value is shown once.";
            onMade();
          }}
        />
      )}
    </Dialog>
  );
}

/** The value of a key, until the dialog is closed. */
function Made({ value, onClose }: { value: string; onClose: () => void }) {
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        onClose();
      }}
    >
      <h2 id="new-key">The new key</h2>
      <p>This is the only time that it is shown. Copy it now, and keep it where nobody else can read it.</p>
      <p class="value">
        <code>{value}</code>
        <Copy text={value} label="Copy" />
      </p>
      <footer>
        <button type="submit" class="main">
          I have it
        </button>
      </footer>
    </form>
  );
}

interface Form {
  box: { current: HTMLInputElement | null };
  project: string;
  onMade: (value: string) => void;
  onClose: () => void;
}

function KeyForm({ box, project, onMade, onClose }: Form) {
  const { value: known, error: unread } = useLoaded(project, (signal) => accounts(project, null, signal), () => 0);
  const [name, setName] = useState("");
  const [account, setAccount] = useState("");
  const [accountName, setAccountName] = useState("");
  const [scopes, setScopes] = useState<string[]>([]);
  const [days, setDays] = useState(0);
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  /** The account that was just made, should the key then be refused. */
  const [begun, setBegun] = useState<{ id: string; name: string } | null>(null);
  const offered = [...(begun ? [begun] : []), ...(known?.data ?? [])];
  async function make(event: SubmitEvent) {
    event.preventDefault();
    setBusy(true);
    setError("");
    try {
      let owner = account;
      if (!owner) {
        const made = await createAccount(project, accountName);
        owner = made.id;
        setBegun(made);
        setAccount(owner);
      }
      const wished: WishedKey = { name };
      if (scopes.length) wished.scopes = scopes;
      if (days) wished.expires_in_seconds = days * DAY_SECONDS;
      onMade((await createKey(project, owner, wished)).value);
    } catch (caught) {
      setError(wordsOf(caught));
      setBusy(false);
    }
  }
  return (
    <form onSubmit={make}>
      <h2 id="new-key">New key</h2>
      <label class="field">
        <span>Name</span>
        <input ref={box} value={name} onInput={(event) => setName(event.currentTarget.value)} />
      </label>
      <label class="field">
        <span>Service account</span>
        <select value={account} onChange={(event) => setAccount(event.currentTarget.value)}>
          <option value="">a new one</option>
          {offered.map((each) => (
            <option key={each.id} value={each.id}>
              {each.name} ({each.id})
            </option>
          ))}
        </select>
      </label>
      {known?.has_more && <p class="hint">The first {known.data.length} accounts can be chosen here.</p>}
      {!account && (
        <label class="field">
          <span>Its name</span>
          <input value={accountName} onInput={(event) => setAccountName(event.currentTarget.value)} />
        </label>
      )}
      <label class="field">
        <span>Expires</span>
        <select value={String(days)} onChange={(event) => setDays(Number(event.currentTarget.value))}>
          {ENDS.map(([words, days]) => (
            <option value={String(days)}>{words}</option>
          ))}
        </select>
      </label>
      <fieldset>
        <legend>Scopes; none is all of them</legend>
        {SCOPES.map((scope) => (
          <label class="check">
            <input
              type="checkbox"
              checked={scopes.includes(scope)}
              onChange={() =>
                setScopes(scopes.includes(scope) ? scopes.filter((each) => each !== scope) : [...scopes, scope])
              }
            />
            <code>{scope}</code>
          </label>
        ))}
      </fieldset>
      {(error || unread) && <Failure error={error || unread} />}
      <footer>
        <button type="button" onClick={onClose}>
          Cancel
        </button>
        <button type="submit" class="main" disabled={busy || !name.trim() || (!account && !accountName.trim())}>
          Create
        </button>
      </footer>
    </form>
  );
}

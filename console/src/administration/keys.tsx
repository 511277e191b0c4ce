// The keys of a project. A key's value is in the answer that made it and nowhere else: it is shown once, and kept nowhere.
import { useState } from "preact/hooks";
import { Asking, Choice, Deletes, Dialog, Field, Opens } from "../views/dialog";
import { useLoaded } from "../views/loading";
import { Ago, Copy, Failure, Line } from "../views/text";
import { LimitsForm } from "./limits";
import { Day, Mono, Name, Pages } from "./pages";
import { type Key, type WishedKey, accounts, createAccount, createKey, keys, limitKey, revokeKey } from "./requests";

const SCOPES = [
  "api.all.read", "api.responses.read", "api.responses.write", "api.conversations.read", "api.conversations.write",
  "api.containers.read", "api.containers.write", "api.files.read", "api.files.write", "api.model.read", "api.model.request",
];

const DAY_SECONDS = 86_400;
const ENDS: [string, string][] = [["0", "never"], ["7", "in a week"], ["30", "in 30 days"], ["90", "in 90 days"], ["365", "in a year"]];

interface Shown {
  project: string;
  isOver: boolean;
  onChanged: () => void;
}

export function Keys({ project, version, isOver, onChanged }: Shown & { version: number }) {
  const [value, setValue] = useState("");
  function made(value: string) {
    setValue(value);
    onChanged();
  }
  return (
    <section>
      <header class="heading">
        <h2>API keys</h2>
        <span class="space" />
        {!isOver && (
          <Opens words="New key…" look="main">
            {(close) => <NewKey project={project} onDone={made} onClose={close} />}
          </Opens>
        )}
      </header>
      <Pages
        what="API keys"
        titles={["Name", "Value", "Account", "Scopes", "Expires", "Last used"]}
        acts
        version={version}
        load={(after, signal) => keys(project, after, signal)}
        row={(key, again) => <Row key={key.id} project={project} shown={key} isOver={isOver} onLimited={again} onChanged={onChanged} />}
        empty={<p>No API keys yet.</p>}
      />
      {value && <Made value={value} onClose={() => setValue("")} />}
    </section>
  );
}

function Row({ project, shown, isOver, onLimited, onChanged }: Shown & { shown: Key; onLimited: () => void }) {
  const expired = shown.expires_at !== null && shown.expires_at * 1000 < Date.now();
  return (
    <tr>
      <Name text={shown.name} />
      <Mono text={shown.redacted_value} />
      <td>{shown.owner.service_account ? <Line text={shown.owner.service_account.name} /> : "–"}</td>
      <td class="scopes">{shown.scopes.length ? <Line text={shown.scopes.join(", ")} /> : "all"}</td>
      <td class={expired ? "over" : ""}>
        {expired && "expired "}
        {shown.expires_at === null ? "never" : <Day at={shown.expires_at} />}
      </td>
      <td>{shown.last_used_at === null ? "never" : <Ago at={shown.last_used_at} />}</td>
      <td class="act">
        {!isOver && !expired && (
          <Opens words="Limits…" name={`Limit the key ${shown.redacted_value}`}>
            {(close) => (
              <LimitsForm
                name={shown.redacted_value}
                hint="They hold beside those of the project. An empty limit is no limit."
                known={shown.limits ?? {}}
                save={(all) => limitKey(project, shown.id, all)}
                onDone={onLimited}
                onClose={close}
              />
            )}
          </Opens>
        )}{" "}
        {!isOver && (
          <Deletes
            label="Revoke"
            of={shown.redacted_value}
            name={`Revoke the key ${shown.redacted_value}`}
            meaning="It stops working within a second."
            act={() => revokeKey(project, shown.id)}
            done="The key is revoked."
            onDone={onChanged}
          />
        )}
      </td>
    </tr>
  );
}

/** The value of a key, until the dialog is closed. */
function Made({ value, onClose }: { value: string; onClose: () => void }) {
  return (
    <Dialog title="The new key" onClose={onClose} stays>
      <p>Copy it now, and keep it where nobody else can read it: it is shown only once.</p>
      <p class="value">
        <code>{value}</code>
        <Copy text={value} label="Copy" />
      </p>
      <footer>
        <button class="main" onClick={onClose}>Done</button>
      </footer>
    </Dialog>
  );
}

interface Making {
  project: string;
  onDone: (value: string) => void;
  onClose: () => void;
}

function NewKey({ project, ...rest }: Making) {
  const { value: known, error } = useLoaded(project, (signal) => accounts(project, null, signal), () => 0);
  const [name, setName] = useState("");
  const [account, setAccount] = useState("");
  const [accountName, setAccountName] = useState("");
  const [scopes, setScopes] = useState<string[]>([]);
  const [days, setDays] = useState("0");
  /** The account that was just made, should the key then be refused. */
  const [begun, setBegun] = useState<{ id: string; name: string } | null>(null);
  const offered = [...(begun ? [begun] : []), ...(known?.data ?? [])];
  const toggled = (scope: string) => (scopes.includes(scope) ? scopes.filter((each) => each !== scope) : [...scopes, scope]);
  async function make() {
    let owner = account;
    if (!owner) {
      const made = await createAccount(project, accountName);
      owner = made.id;
      setBegun(made);
      setAccount(owner);
    }
    const wished: WishedKey = { name };
    if (scopes.length) wished.scopes = scopes;
    if (Number(days)) wished.expires_in_seconds = Number(days) * DAY_SECONDS;
    return (await createKey(project, owner, wished)).value;
  }
  return (
    <Asking
      title="New key"
      label="Create"
      act={make}
      done="The key is created. Its value is shown once."
      isReady={name.trim() !== "" && (account || accountName).trim() !== ""}
      {...rest}
    >
      <Field name="Name" value={name} onText={setName} />
      <Choice
        isField
        name="Service account"
        value={account}
        options={[["", "a new one"], ...offered.map(({ id, name }): [string, string] => [id, `${name} (${id})`])]}
        onChange={setAccount}
      />
      {known?.has_more && <p class="hint">The first {known.data.length} accounts are listed here.</p>}
      {!account && <Field name="Its name" value={accountName} onText={setAccountName} />}
      <Choice isField name="Expires" value={days} options={ENDS} onChange={setDays} />
      <fieldset>
        <legend>Scopes (none: all of them)</legend>
        {SCOPES.map((scope) => (
          <label class="check">
            <input type="checkbox" checked={scopes.includes(scope)} onChange={() => setScopes(toggled(scope))} />
            <code>{scope}</code>
          </label>
        ))}
      </fieldset>
      <Failure error={error} />
    </Asking>
  );
}

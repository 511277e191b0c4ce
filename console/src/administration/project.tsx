// One project: who has keys of it, how it is limited, and what it used.
import { useState } from "preact/hooks";
import { toProjects } from "../state";
import { Deletes, Opens } from "../views/dialog";
import { useLoaded } from "../views/loading";
import { Copy, Failure, Line, Loading } from "../views/text";
import { Keys } from "./keys";
import { ProjectLimits } from "./limits";
import { Day, Mono, Name, Pages } from "./pages";
import { ChangeProject } from "./projects";
import { type Account, type Project, accounts, archiveProject, deleteAccount, oneProject } from "./requests";
import { Usage } from "./usage";

export function ProjectView({ id }: { id: string }) {
  const { value: project, error, again } = useLoaded(id, (signal) => oneProject(id, signal), () => 0);
  return (
    <>
      <a class="back" href={toProjects}>← Projects</a>
      {error && (
        <>
          <h1>Can't show this project</h1>
          <Failure error={error} again={again} />
        </>
      )}
      {!project && !error && <Loading what="the project" />}
      {project && <Whole project={project} again={again} />}
    </>
  );
}

function Whole({ project, again }: { project: Project; again: () => void }) {
  const [version, setVersion] = useState(0);
  const isOver = project.archived_at !== null;
  const changed = (): void => setVersion((before) => before + 1);
  return (
    <>
      <header class="heading">
        <h1><Line text={project.name} /></h1>
        {!isOver && <Opens words="Change…">{(close) => <ChangeProject project={project} onDone={again} onClose={close} />}</Opens>}
        {!isOver && !project.static && (
          <Deletes
            label="Archive"
            of={project.name}
            meaning="All of its API keys stop working."
            act={() => archiveProject(project.id)}
            done="The project is archived."
            onDone={again}
          />
        )}
      </header>
      <p class="about">
        <Copy text={project.id} label={project.id} title="Copy the id" quiet />
        {project.static ? <span>its API keys are in the settings</span> : <span>created <Day at={project.created_at} /></span>}
        {project.weight !== null && <span>weight {project.weight.toLocaleString("en")}</span>}
        {project.archived_at !== null && <span class="over">archived <Day at={project.archived_at} /></span>}
      </p>
      {!project.static && (
        <>
          <Keys project={project.id} version={version} isOver={isOver} onChanged={changed} />
          <section>
            <h2>Service accounts</h2>
            <Pages
              what="Service accounts"
              titles={["Name", "Id", "Created"]}
              acts
              version={version}
              load={(after, signal) => accounts(project.id, after, signal)}
              row={(account) => <AccountRow key={account.id} project={project.id} account={account} isOver={isOver} onChanged={changed} />}
              empty={<p>No service accounts yet. One is created with its first API key.</p>}
            />
          </section>
        </>
      )}
      <ProjectLimits project={project.id} isOver={isOver} />
      <section>
        <h2>Usage</h2>
        <Usage project={project.id} />
      </section>
    </>
  );
}

interface AccountShown {
  project: string;
  account: Account;
  isOver: boolean;
  onChanged: () => void;
}

function AccountRow({ project, account, isOver, onChanged }: AccountShown) {
  return (
    <tr>
      <Name text={account.name} />
      <Mono text={account.id} />
      <td><Day at={account.created_at} /></td>
      <td class="act">
        {!isOver && (
          <Deletes
            label="Delete"
            of={account.name}
            name={`Delete the account ${account.id}`}
            meaning="All API keys of this service account stop working."
            act={() => deleteAccount(project, account.id)}
            done="The service account is deleted."
            onDone={onChanged}
          />
        )}
      </td>
    </tr>
  );
}

// What an administrator's key shows: no conversations, as it opens none, but who may have them.
import { type Section, place, toSection } from "../state";
import { Audit } from "./audit";
import { HealthView } from "./health";
import { ProjectView } from "./project";
import { Projects } from "./projects";
import { Usage } from "./usage";

const SECTIONS: [Section, string][] = [["projects", "Projects"], ["usage", "Usage"], ["audit", "Audit log"], ["health", "Health"]];

export function Administration() {
  const at = place.value;
  const section = at.view === "administration" ? at.section : "projects";
  const id = at.view === "administration" ? at.id : "";
  return (
    <main class="list administration">
      <nav class="sections" aria-label="Administration">
        {SECTIONS.map(([each, title]) => <a href={toSection(each)} aria-current={each === section ? "page" : undefined}>{title}</a>)}
      </nav>
      {section === "projects" && (id ? <ProjectView key={id} id={id} /> : <Projects />)}
      {section === "usage" && (
        <>
          <h1>Usage</h1>
          <Usage />
        </>
      )}
      {section === "audit" && <Audit />}
      {section === "health" && <HealthView />}
    </main>
  );
}

// The page: which view is shown, of which runs.

import { get } from "./api.js";
import { aboutView } from "./about.js";
import { el, failure, icon, visible } from "./dom.js";
import { exploreView } from "./explore.js";
import { setUpItem } from "./item.js";
import { mapView } from "./map.js";
import { VIEWS, addressOf, itemsOf, readAddress, state, subscribe, update } from "./state.js";

const at = (id) => document.getElementById(id);
const SECTIONS = { explore: "explore", map: "map", run: "about" };
const NAMES = { explore: "Explore", map: "Map of the catalogue", run: "The run" };
const THEMES = ["system", "light", "dark"];

function setUpTheme(changed) {
  const button = at("theme");
  let theme = "system";
  try {
    theme = THEMES.includes(localStorage.theme) ? localStorage.theme : theme;
  } catch {
    // Storage may be forbidden: then the choice lasts as long as the page.
  }
  const show = () => {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    const label = `Colours: ${theme}. Change`;
    button.setAttribute("aria-label", label);
    button.title = label;
    button.replaceChildren(icon(theme));
  };
  button.addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    try {
      localStorage.theme = theme;
    } catch {
      // As above.
    }
    show();
    changed();
  });
  show();
}

async function changeRun(run, other) {
  const history = await itemsOf(
    state.history.map((item) => item.key),
    run,
  );
  update({
    run,
    other: other === run ? null : other,
    history,
    filters: {},
    traits: {},
    typed: "",
    k: 10,
  });
}

function drawHeader(changed) {
  for (const link of document.querySelectorAll("[data-view]")) {
    const here = link.dataset.view === state.view;
    link.href = addressOf(link.dataset.view);
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (changed.has("run") || changed.has("runs") || changed.has("other")) {
    const options = (chosen) =>
      state.runs.map(({ name }) =>
        el("option", { value: name, selected: name === chosen }, visible(name)),
      );
    at("run").replaceChildren(...options(state.run));
    at("run").disabled = state.runs.length < 2;
    at("other").replaceChildren(
      el("option", { value: "", selected: state.other === null }, "none"),
      ...options(state.other).filter((option) => option.value !== state.run),
    );
    at("other-field").hidden = state.runs.length < 2;
  }
  if (changed.has("view")) {
    for (const view of VIEWS) at(SECTIONS[view]).hidden = view !== state.view;
    at("heading").textContent = NAMES[state.view];
    document.title = `${NAMES[state.view]} · widemax`;
  }
}

async function start() {
  const boot = at("boot");
  try {
    const { runs } = await get("run");
    if (!runs.length) {
      boot.textContent = "The server has no run to show.";
      return;
    }
    state.runs = runs;
    const { had, ...asked } = readAddress();
    const history = await itemsOf(had, asked.run);
    const views = {
      map: mapView(at("map")),
      explore: exploreView(at("explore")),
      about: aboutView(at("about")),
    };
    setUpItem({ showOnMap: (item) => views.map.show(item) });
    repaint = () => views.map.repaint();
    subscribe(drawHeader);
    for (const view of Object.values(views)) subscribe((changed) => view.draw(changed));
    boot.hidden = true;
    update({ ...asked, runs, history });
    at("run").addEventListener("change", (event) => changeRun(event.target.value, state.other));
    at("other").addEventListener("change", (event) =>
      update({ other: event.target.value || null }),
    );
    addEventListener("hashchange", followAddress);
  } catch (error) {
    boot.setAttribute("role", "none");
    boot.replaceChildren(failure(error, () => location.reload()));
  }
}

async function followAddress() {
  const { had, ...asked } = readAddress();
  const history = await itemsOf(had, asked.run);
  const same =
    history.length === state.history.length &&
    history.every((item, place) => item.key === state.history[place].key);
  const changes = Object.fromEntries(
    Object.entries(asked).filter(([name, value]) => state[name] !== value),
  );
  update(same ? changes : { ...changes, history });
  if ("view" in changes) {
    at("main").focus({ preventScroll: true });
    scrollTo(0, 0);
  }
}

at("skip").addEventListener("click", (event) => {
  event.preventDefault();
  at("main").focus();
});
let repaint = () => {};
setUpTheme(() => repaint());
start();

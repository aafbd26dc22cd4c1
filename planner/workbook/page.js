// The parts of the page that are not widgets: its language and title, names for the handles of the sliders, live regions.

let count = 0;

// ipywidgets gives a slider a visible label but its handle (role=slider) and its readout no name.
function nameSliders(root) {
  for (const label of root.querySelectorAll(".widget-slider > .widget-label")) {
    label.id ||= `planner-label-${++count}`;
    for (const part of label.parentElement.querySelectorAll("[role=slider], .widget-readout")) {
      if (part.getAttribute("aria-labelledby") === label.id) continue;
      part.setAttribute("aria-labelledby", label.id);
      if (part.matches(".widget-readout")) part.setAttribute("role", "textbox");
    }
  }
}

function render({ model, el }) {
  const voila = "voila" in document.body.dataset; // in JupyterLab the page around the app is not ours
  el.style.display = "none";

  function say() {
    const language = model.get("language");
    el.closest(".planner-app")?.setAttribute("lang", language);
    if (!voila) return;
    document.documentElement.lang = language;
    if (model.get("title")) document.title = model.get("title");
  }

  function address() {
    if (voila && model.get("link")) history.replaceState(null, "", model.get("link"));
  }

  const watcher = new MutationObserver(() => nameSliders(el.closest(".planner-app") ?? document));
  const frame = requestAnimationFrame(() => {
    say();
    const app = el.closest(".planner-app") ?? document.body;
    nameSliders(app);
    for (const region of app.querySelectorAll(".planner-live")) region.setAttribute("aria-live", "polite");
    const controls = app.querySelector(".planner-controls");
    if (controls) watcher.observe(controls, { childList: true, subtree: true });
  });
  model.on("change:language", say);
  model.on("change:title", say);
  model.on("change:link", address);

  return () => {
    cancelAnimationFrame(frame);
    watcher.disconnect();
    model.off("change:language", say);
    model.off("change:title", say);
    model.off("change:link", address);
  };
}

export default { render };

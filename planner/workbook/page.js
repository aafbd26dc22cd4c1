// The parts of the page that are not widgets: its language and title, names for the handles of the
// sliders, live regions, and whether anyone answers.

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

// Says when the kernel behind the page is busy, out of reach or gone; what cannot be answered cannot be set. Returns its own undoing.
function watchKernel(model, app) {
  const kernel = model.widget_manager?.kernel;
  if (!kernel?.statusChanged) return () => {};
  const banner = Object.assign(document.createElement("div"), { className: "planner-connection", hidden: true });
  const words = banner.appendChild(document.createElement("span"));
  const reload = Object.assign(banner.appendChild(document.createElement("button")), { onclick: () => location.reload() });
  banner.setAttribute("role", "status");
  app.prepend(banner);
  let gone = false, waiting = 0; // a kernel that was started anew knows nothing of this page

  function look() {
    gone ||= kernel.isDisposed || ["dead", "restarting", "autorestarting", "terminating"].includes(kernel.status);
    const apart = kernel.connectionStatus !== "connected";
    const state = gone ? "gone" : apart ? "apart" : kernel.status === "busy" ? "busy" : "";
    clearTimeout(waiting);
    waiting = setTimeout(show, state === "busy" || state === "apart" ? 1000 : 0, state); // not at every move
  }
  function show(state) {
    banner.hidden = !state;
    banner.dataset.state = state;
    words.textContent = model.get("texts")[state] ?? "";
    reload.textContent = model.get("texts").reload ?? "";
    reload.hidden = state === "busy";
    for (const part of app.children) if (part !== banner) part.inert = state === "gone" || state === "apart";
  }
  const signals = [kernel.statusChanged, kernel.connectionStatusChanged, kernel.disposed];
  for (const signal of signals) signal?.connect(look);
  model.on("change:texts", look);
  return () => {
    for (const signal of signals) signal?.disconnect(look);
    model.off("change:texts", look);
    clearTimeout(waiting);
    banner.remove();
  };
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

  let unwatch = () => {};
  const watcher = new MutationObserver(() => nameSliders(el.closest(".planner-app") ?? document));
  const frame = requestAnimationFrame(() => {
    say();
    const app = el.closest(".planner-app") ?? document.body;
    nameSliders(app);
    unwatch = watchKernel(model, app);
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
    unwatch();
    model.off("change:language", say);
    model.off("change:title", say);
    model.off("change:link", address);
  };
}

export default { render };

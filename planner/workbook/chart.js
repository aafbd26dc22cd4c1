// One plotly chart. plotly.js comes once per page: from the page itself where the server offers it
// (<script id="planner-plotly">, see the Voila template), else from the kernel, gzipped.

function loaded(element) {
  if (window.Plotly?.react) return Promise.resolve(window.Plotly);
  if (element.dataset.failed) return Promise.reject(new Error("plotly.js did not load"));
  return new Promise((resolve, reject) => {
    element.addEventListener("load", () => resolve(window.Plotly));
    element.addEventListener("error", () => reject(new Error("plotly.js did not load")));
  });
}

async function fromKernel(model) {
  const packed = await new Promise((resolve) => {
    const take = (message, buffers) => {
      if (message !== "plotly") return;
      model.off("msg:custom", take);
      resolve(buffers[0]);
    };
    model.on("msg:custom", take);
    model.send("plotly");
  });
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const url = URL.createObjectURL(new Blob([await new Response(stream).blob()], { type: "text/javascript" }));
  const element = Object.assign(document.createElement("script"), { src: url });
  document.head.append(element);
  return loaded(element).finally(() => URL.revokeObjectURL(url));
}

function plotly(model) {
  const offered = document.getElementById("planner-plotly");
  window.plannerPlotly ??= offered ? loaded(offered).catch(() => fromKernel(model)) : fromKernel(model);
  return window.plannerPlotly;
}

// The page's own colours, asked of a probe inside the chart so that light and dark, Lab and Voila all work. Asking is slow.
function palette(element) {
  const known = new Map();
  const colour = (name) => {
    if (!known.has(name)) {
      const probe = element.appendChild(document.createElement("i"));
      probe.style.color = `var(${name})`;
      known.set(name, getComputedStyle(probe).color);
      probe.remove();
    }
    return known.get(name);
  };
  return { colour, forget: () => known.clear() };
}

function coloured(value, colour) {
  if (typeof value === "string") return value.startsWith("var(--planner-") ? colour(value.slice(4, -1)) : value;
  if (Array.isArray(value)) return typeof value[0] === "number" ? value : value.map((item) => coloured(item, colour));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, coloured(item, colour)]));
}

function template(colour, element) {
  const axis = {
    fixedrange: true, gridcolor: colour("--planner-grid"), linecolor: colour("--planner-axis"),
    zerolinecolor: colour("--planner-axis"), tickcolor: colour("--planner-axis"), title: { standoff: 12 },
  };
  return {
    layout: {
      font: { family: getComputedStyle(element).fontFamily, size: 13, color: colour("--planner-ink-2") },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 60, r: 16, t: 24, b: 36 },
      colorway: [1, 2, 3, 4, 5, 6, 7, 8].map((n) => colour(`--planner-series-${n}`)),
      hoverlabel: {
        bgcolor: colour("--planner-surface"), bordercolor: colour("--planner-line"),
        font: { color: colour("--planner-ink") }, namelength: -1,
      },
      xaxis: axis, yaxis: axis, dragmode: false,
    },
  };
}

function render({ model, el }) {
  const plot = Object.assign(document.createElement("div"), { className: "planner-plot" });
  el.classList.add("planner-chart");
  el.append(plot);
  const { colour, forget } = palette(el);
  let library, drawing = false, stale = true, seen = false; // a chart out of sight is drawn when it comes into sight

  function describe() {
    plot.style.height = `${model.get("height")}px`;
    const alt = model.get("alt"); // empty until the chart has something to say
    for (const [name, value] of [["role", alt && "img"], ["aria-label", alt]]) {
      value ? plot.setAttribute(name, value) : plot.removeAttribute(name);
    }
  }

  async function draw() {
    stale = true;
    if (!library || !seen || drawing || !plot.clientWidth) return;
    drawing = true;
    try {
      while (stale) {
        stale = false;
        const { data = [], layout = {} } = coloured(model.get("spec"), colour);
        const frame = { ...layout, template: layout.template ?? template(colour, el), autosize: true };
        await library.react(plot, data, frame, { displayModeBar: false, responsive: false });
        plot.dataset.drawn = Number(plot.dataset.drawn ?? 0) + 1;
      }
    } finally {
      drawing = false;
    }
  }

  describe();
  model.on("change:spec", draw);
  model.on("change:alt", describe);
  model.on("change:height", describe);

  const recolour = () => (forget(), draw());
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", recolour);
  const theme = new MutationObserver(recolour); // JupyterLab's own theme switch
  theme.observe(document.body, { attributeFilter: ["data-jp-theme-light", "data-jp-theme-name"] });
  const size = new ResizeObserver(() => {
    if (!plot.dataset.drawn) draw();
    else if (plot.clientWidth && !drawing) library.Plots.resize(plot);
  });
  size.observe(plot);
  const sight = new IntersectionObserver((entries) => {
    seen = entries.at(-1).isIntersecting;
    if (seen && stale) draw();
  }, { rootMargin: "150px" });
  sight.observe(plot);

  plotly(model).then((loaded) => ((library = loaded), draw())).catch((error) => {
    plot.textContent = model.get("alt") || error.message;
  });

  return () => {
    model.off("change:spec", draw);
    model.off("change:alt", describe);
    model.off("change:height", describe);
    dark.removeEventListener("change", recolour);
    theme.disconnect();
    size.disconnect();
    sight.disconnect();
    library?.purge(plot);
  };
}

export default { render };

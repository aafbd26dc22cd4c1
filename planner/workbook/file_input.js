// A button that sends one chosen file as one message. One larger than a Jupyter server takes is only named: it would close the connection.

function render({ model, el }) {
  const label = Object.assign(document.createElement("label"), { className: "jupyter-button planner-file" });
  const text = document.createElement("span");
  const input = Object.assign(document.createElement("input"), { type: "file", className: "planner-hidden" });
  label.append(text, input);
  el.append(label);

  function describe() {
    text.textContent = model.get("description");
    input.accept = model.get("accept");
    input.disabled = model.get("disabled");
  }

  async function send() {
    const [file] = input.files;
    if (!file) return;
    const large = file.size > model.get("most_bytes");
    model.send({ name: file.name }, undefined, large ? [] : [await file.arrayBuffer()]);
    input.value = ""; // so that the same file can be sent again
  }

  describe();
  input.addEventListener("change", send);
  model.on("change", describe);
  return () => model.off("change", describe);
}

export default { render };

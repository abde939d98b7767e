"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const options = {
    mode: "vega-lite", renderer: "svg", actions: false, config: data.config,
    ast: true, // interpret expressions: the page's policy allows no evaluation of text
    tooltip: { theme: "custom" },
  };
  for (const [id, spec] of Object.entries(data.charts)) window.vegaEmbed("#" + id, spec, options);
  if (!data.runs) return; // a page without a table of certificates

  const PAGE = 100;
  const columns = [
    { key: "picture", title: "", when: () => Object.keys(data.pictures).length > 0 },
    { key: "id", title: "input", number: true },
    { key: "label", title: "label", text: className },
    { key: "prediction", title: "prediction", text: (v) => (v < 0 ? "-" : className(v)) },
    { key: "outcome", title: "outcome" },
    { key: "radius", title: "radius", number: true, text: (v, row) => (row.prediction < 0 ? "-" : v.toFixed(4)) },
    { key: "samples", title: "samples", number: true, text: (v) => v.toLocaleString("en") },
    { key: "p", title: "p", number: true, text: share },
    { key: "lower", title: "lower bound", number: true, text: share },
    { key: "upper", title: "upper bound on others", number: true, text: share },
    { key: "missing", title: "not finite", number: true },
  ];
  const kinds = {
    all: { keep: () => true, sort: ["id", 1] },
    easiest: { keep: (row) => row.outcome === "correct", sort: ["radius", -1] },
    hardest: { keep: (row) => row.outcome === "correct", sort: ["radius", 1] },
    uncertified: { keep: (row) => row.prediction < 0, sort: ["id", 1] },
    wrong: { keep: (row) => row.outcome === "wrong", sort: ["radius", -1] },
  };
  const [head, body] = [document.querySelector("#rows thead tr"), document.querySelector("#rows tbody")];
  const [run, filter, find, shown, more] = ["run", "filter", "find", "shown", "more"].map((id) => document.getElementById(id));
  let rows = [], selected = [], drawn = 0, sort = ["id", 1], visible = [];

  function className(index) {
    const names = data.runs[run ? run.value : 0].groups || data.classes;
    return index < 0 ? "-" : names[index] === undefined ? String(index) : `${index} ${names[index]}`;
  }

  function share(value) {
    return value === null ? "-" : value.toFixed(4);
  }

  function outcome(label, prediction, uncertified) {
    if (prediction < 0) return uncertified;
    return label < 0 ? "no label" : label === prediction ? "correct" : "wrong";
  }

  function load(index) {
    const { columns: table, uncertified, known_labels: knownLabels } = data.runs[index];
    filter.querySelector("[value=uncertified]").textContent = uncertified;
    const wrong = filter.querySelector("[value=wrong]");
    wrong.hidden = wrong.disabled = knownLabels; // nobody knows which inputs are wrong
    if (wrong.disabled && filter.value === "wrong") filter.value = "all";
    rows = table.id.map((id, i) => {
      const row = { outcome: outcome(table.label[i], table.prediction[i], uncertified) };
      for (const key of Object.keys(table)) row[key] = table[key][i];
      return row;
    });
    visible = columns.filter((c) => (c.when ? c.when() : c.key === "outcome" || c.key in table));
    choose();
  }

  function choose() {
    sort = kinds[filter.value].sort;
    select();
  }

  function select() {
    const wanted = find.value.trim().toLowerCase();
    const matches = (row) => !wanted || String(row.id) === wanted
      || [row.label, row.prediction].some((c) => c >= 0 && className(c).toLowerCase().includes(wanted));
    const [key, direction] = sort;
    selected = rows.filter((row) => kinds[filter.value].keep(row) && matches(row));
    selected.sort((a, b) => direction * (a[key] < b[key] ? -1 : a[key] > b[key] ? 1 : 0) || a.id - b.id);
    head.replaceChildren(...visible.map(header));
    body.replaceChildren();
    drawn = 0;
    draw();
  }

  function header(column) {
    const cell = document.createElement("th");
    cell.scope = "col";
    if (column.number) cell.className = "number";
    if (column.key === "picture") return cell;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = column.title;
    button.addEventListener("click", () => {
      sort = [column.key, sort[0] === column.key ? -sort[1] : 1];
      select();
    });
    if (sort[0] === column.key) cell.ariaSort = sort[1] > 0 ? "ascending" : "descending";
    cell.append(button);
    return cell;
  }

  function draw() {
    const next = selected.slice(drawn, drawn + PAGE);
    body.append(...next.map((row) => {
      const line = document.createElement("tr");
      line.append(...visible.map((column) => cellOf(column, row)));
      return line;
    }));
    drawn += next.length;
    more.hidden = drawn >= selected.length;
    const { inputs } = data.runs[run ? run.value : 0];
    const listed = rows.length < inputs ? ` (${rows.length.toLocaleString("en")} of ${inputs.toLocaleString("en")} inputs are listed; smoothcert export writes all)` : "";
    shown.textContent = `${selected.length.toLocaleString("en")} certificates${listed}`;
  }

  function cellOf(column, row) {
    const cell = document.createElement("td");
    if (column.number) cell.className = "number";
    if (column.key === "picture") {
      if (row.id in data.pictures) {
        const image = document.createElement("img");
        image.src = data.pictures[row.id];
        image.alt = `input ${row.id}`;
        cell.append(image);
      }
      return cell;
    }
    if (column.key === "outcome") cell.className = row.prediction < 0 ? "uncertified" : row.outcome;
    cell.textContent = column.text ? column.text(row[column.key], row) : row[column.key];
    return cell;
  }

  if (run) run.addEventListener("change", () => load(run.value));
  filter.addEventListener("change", choose);
  find.addEventListener("input", select);
  more.addEventListener("click", draw);
  new IntersectionObserver(([entry]) => entry.isIntersecting && draw(), { root: more.parentElement, rootMargin: "300px" }).observe(more);
  load(0);
})();

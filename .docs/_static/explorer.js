// Tables of RESULTS (data/results/explorer.js), filtered and sorted. Text of the files becomes text nodes, never markup.
"use strict";

const FOLDER = "../data/results/";
const SHOWN = 100; // rows at first

function element(name, content = [], properties = {}) {
  const made = document.createElement(name);
  made.append(...[content].flat());
  return Object.assign(made, properties); // a select takes a value that one of its options has
}

function rounded(value) {
  return Number(value.toPrecision(3)).toLocaleString("en", { maximumSignificantDigits: 6 });
}

function duration(seconds) {
  const [scale, unit] = seconds >= 1 ? [1, "s"] : seconds >= 1e-3 ? [1e3, "ms"] : [1e6, "µs"];
  return `${rounded(seconds * scale)} ${unit}`;
}

function shown(value, column) {
  if (value === null) return "";
  if (column === "seconds" || column.endsWith("_s")) return duration(value);
  return typeof value === "number" ? value.toLocaleString("en") : value;
}

function source(row) {
  const page = /^(\w+)\.md$/;
  const words = row.command.split("`").map((text, i) => {
    if (i % 2 === 0 && !/^python /.test(text)) return text;
    return page.test(text) ? element("a", text, { href: FOLDER + text.replace(page, "$1.html") }) : element("code", text);
  });
  const file = element("a", row.file, { href: FOLDER + row.file });
  const lines = [["file: ", file], ["commit: ", element("code", row.commit)], ["command: ", ...words]];
  return element("details", [element("summary", row.file), ...lines.map((line) => element("div", line))]);
}

function explorer(place) {
  const name = place.dataset.table;
  const { columns, data, filters } = RESULTS[name];
  const rows = data.map((row) => Object.fromEntries(row.map((value, i) => [columns[i], value])));
  const visible = columns.filter((column) => !["file", "commit", "command"].includes(column));
  const address = new URLSearchParams(location.hash.slice(1));
  let sorted = { column: "", down: false };
  let most = SHOWN;

  const choices = Object.entries(filters).map(([column, values]) => {
    const options = ["", ...values].map((value) =>
      element("option", value === "" ? "all" : shown(value, column), { value: String(value) }));
    const select = element("select", options, { value: address.get(`${name}.${column}`) ?? "", name: column });
    return element("label", [column.replace(/_s$/, ""), select]);
  });
  const word = element("input", [], { type: "search", name: "contains", value: address.get(`${name}.contains`) ?? "" });
  const form = element("form", [...choices, element("label", ["contains", word])]);
  const caption = element("p", [], { className: "explorer-count", role: "status" });
  const heads = visible.map((column) => {
    const button = element("button", column.replace(/_s$/, ""), { type: "button" });
    button.onclick = () => {
      sorted = { column, down: sorted.column === column && !sorted.down };
      show();
    };
    return element("th", button, { scope: "col" });
  });
  const body = element("tbody");
  const table = element("table", [element("thead", element("tr", [...heads, element("th", "source")])), body]);
  const more = element("button", "", { type: "button", className: "explorer-more" });
  more.onclick = () => {
    most = Infinity;
    show();
  };

  function chosen() {
    const wanted = [...new FormData(form)].filter(([, value]) => value !== "");
    for (const key of [...address.keys()].filter((key) => key.startsWith(`${name}.`))) address.delete(key);
    for (const [key, value] of wanted) address.set(`${name}.${key}`, value);
    const text = word.value.toLowerCase();
    return rows.filter((row) =>
      wanted.every(([key, value]) => key === "contains" || String(row[key]) === value) &&
      visible.some((column) => String(row[column]).toLowerCase().includes(text)));
  }

  function compare(a, b) {
    const [x, y] = [a[sorted.column], b[sorted.column]];
    if (x === null || y === null) return (x === null) - (y === null); // what is not known comes last
    const order = typeof x === "number" ? x - y : x.localeCompare(y, "en", { numeric: true });
    return sorted.down ? -order : order;
  }

  function show() {
    const part = chosen();
    if (sorted.column) part.sort(compare);
    heads.forEach((head, i) =>
      head.setAttribute("aria-sort", visible[i] !== sorted.column ? "none" : sorted.down ? "descending" : "ascending"));
    const found = part.filter((row) => row.found === "yes").length;
    const share = columns.includes("found") && part.length ? `, found ${found.toLocaleString("en")} (${Math.round((100 * found) / part.length)} %)` : "";
    caption.textContent = part.length ? `${part.length.toLocaleString("en")} rows${share}` : "No row is like that: set a choice to “all”.";
    body.replaceChildren(...part.slice(0, most).map((row) => {
      const cells = visible.map((column) => {
        const cell = element("td", shown(row[column], column), { className: typeof row[column] === "number" ? "number" : column });
        cell.dataset.label = column.replace(/_s$/, "");
        return cell;
      });
      return element("tr", [...cells, element("td", source(row), { className: "source" })]);
    }));
    more.hidden = part.length <= most;
    more.textContent = `Show all ${part.length.toLocaleString("en")} rows`;
  }

  form.oninput = () => {
    most = SHOWN;
    show();
    history.replaceState(null, "", `#${address}`);
  };
  form.onsubmit = () => false;
  place.replaceChildren(form, caption, element("div", table, { className: "table-wrapper" }), more);
  show();
}

document.querySelectorAll(".explorer").forEach(explorer);

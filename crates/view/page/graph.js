// The calls of a time by the path that led to them: as a tree of rows, and as a flame graph.

/** @import {Details} from "./details.js" */
/** @import {Graph} from "./types.js" */

import { colorOf, css } from "./colors.js";
import { byId, count, duration, element } from "./text.js";

/** A row opens by itself if one of its calls takes this part of its time. */
const HOT = 0.5;
/** The narrowest box of a flame graph, as a part of the width. */
const NARROWEST = 0.0008;

/** What stands for calls that are left out. */
const OTHERS = "others";

/** @param {Graph} graph */
function note({ left_out: leftOut }) {
	const text = `${count(leftOut)} calls on paths that took less are left out: their time is that of “${OTHERS}”.`;
	return leftOut > 0 ? [element("p", text)] : [];
}

/**
 * @param {Details} details
 * @param {Graph} graph
 */
export function showTree(details, graph) {
	const { nodes } = graph;
	/** @type {number[][]} */
	const children = nodes.map(() => []);
	nodes.forEach(([, parent], at) => at > 0 && children[parent].push(at));
	children.forEach(some => some.sort((one, other) => nodes[other][3] - nodes[one][3]));
	const all = Math.max(1, nodes[0][3]);
	const table = element("table");
	table.setAttribute("role", "treegrid");
	table.append(element("caption", `Calls by the path that led to them, of ${details.subject()}`));
	const head = table.createTHead().insertRow();
	for (const name of ["total", "of all", "self", "calls", "function"]) {
		const cell = element("th", name, name === "function" ? "name" : "");
		cell.scope = "col";
		head.append(cell);
	}
	const body = table.createTBody();

	/**
	 * Puts a row behind another one.
	 * @param {number} level
	 * @param {HTMLTableRowElement | null} behind
	 * @param {number} total
	 * @param {string[]} more
	 */
	const insert = (level, behind, total, more) => {
		const row = body.insertRow(behind ? behind.sectionRowIndex + 1 : -1);
		row.ariaLevel = String(level);
		const texts = [duration(total), `${(total / all * 100).toFixed(1)} %`, ...more];
		const cell = element("td", "", "name");
		cell.style.paddingLeft = `calc(${level - 1} * var(--indent))`;
		row.append(...texts.map(text => element("td", text)), cell);
		return { row, cell };
	};

	/**
	 * Puts rows behind another one.
	 * @param {number} parent
	 * @param {number} level
	 * @param {HTMLTableRowElement | null} behind
	 */
	const open = (parent, level, behind) => {
		/** @type {(() => void)[]} */
		const hot = [];
		let last = behind;
		for (const at of children[parent]) {
			const [site, , calls, total, own] = nodes[at];
			const { row, cell } = insert(level, last, total, [duration(own), count(calls)]);
			last = row;
			const isLeaf = children[at].length === 0 && nodes[at][5] === 0;
			const fold = element("button", isLeaf ? "" : "▸", "fold");
			fold.type = "button";
			fold.disabled = isLeaf;
			fold.ariaLabel = `calls of ${details.name(site)}`;
			const toggle = () => {
				const isOpen = row.ariaExpanded === "true";
				row.ariaExpanded = String(!isOpen);
				fold.textContent = isOpen ? "▸" : "▾";
				if (isOpen) {
					close(row, level);
				} else {
					open(at, level + 1, row);
				}
			};
			fold.addEventListener("click", toggle);
			if (!isLeaf) {
				row.ariaExpanded = "false";
			}
			if (children[at].length > 0 && nodes[children[at][0]][3] >= total * HOT && total >= all * 0.05) {
				hot.push(toggle);
			}
			cell.append(fold, details.link(site, () => details.actions.search(details.name(site))));
		}
		if (nodes[parent][5] > 0) {
			const { cell } = insert(level, last, nodes[parent][5], ["", ""]);
			cell.append(OTHERS);
		}
		hot.reverse().forEach(toggle => toggle());
	};

	/**
	 * @param {HTMLTableRowElement} row
	 * @param {number} level
	 */
	const close = (row, level) => {
		for (let next = row.nextElementSibling; next && Number(next.ariaLevel) > level; next = row.nextElementSibling) {
			next.remove();
		}
	};

	open(0, 1, null);
	byId("panel-tree").replaceChildren(table, ...note(graph));
}

/**
 * @param {Details} details
 * @param {Graph} graph
 */
export function showFlame(details, graph) {
	const flame = element("div", "", "flame");
	const all = Math.max(1, graph.nodes[0][3]);
	/** For each node, its begin and the part taken by its children, in parts of the width, and its depth. */
	/** @type {{left: number, taken: number, depth: number}[]} */
	const places = [{ left: 0, taken: 0, depth: -1 }];
	let deepest = 0;

	/**
	 * A box, unless it is too narrow.
	 * @param {string} name
	 * @param {{left: number, depth: number}} place
	 * @param {number} total
	 * @param {string} more
	 */
	const box = (name, { left, depth }, total, more) => {
		const width = total / all;
		deepest = Math.max(deepest, depth);
		if (width < NARROWEST) {
			return null;
		}
		const button = element("button");
		button.type = "button";
		button.append(element("span", name));
		button.ariaLabel = name;
		button.style.left = `${left * 100}%`;
		button.style.width = `${width * 100}%`;
		button.style.top = `${depth * 18}px`;
		button.title = `${name}: ${duration(total)}, ${more}${(width * 100).toFixed(1)} %`;
		flame.append(button);
		return button;
	};

	graph.nodes.forEach(([site, parent, calls, total], at) => {
		if (at === 0) {
			return;
		}
		const under = places[parent];
		const place = { left: under.left + under.taken, taken: 0, depth: under.depth + 1 };
		places.push(place);
		under.taken += total / all;
		const name = details.name(site);
		const button = box(name, place, total, `${count(calls)} calls, `);
		if (button) {
			button.style.background = css(colorOf(name));
			button.addEventListener("click", () => details.actions.search(name));
		}
	});
	graph.nodes.forEach(([, , , , , leftOut], at) => {
		const { left, taken, depth } = places[at];
		const button = leftOut > 0 && box(OTHERS, { left: left + taken, depth: depth + 1 }, leftOut, "");
		if (button) {
			button.disabled = true;
			button.style.background = "var(--line)";
		}
	});
	flame.style.height = `${(deepest + 1) * 18}px`;
	byId("panel-flame").replaceChildren(flame, ...note(graph));
}

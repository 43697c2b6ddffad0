// Times and numbers as people read them.

const UNITS = /** @type {const} */ ([["s", 1e9], ["ms", 1e6], ["us", 1e3], ["ns", 1]]);

/** Rows of a table of functions; more are counted. */
export const MOST_ROWS = 500;

/**
 * Three digits, as in the tables of `nopal report`.
 * @param {number} ns
 */
export function duration(ns) {
	for (const [unit, size] of UNITS) {
		const value = ns / size;
		if (value >= 1 || unit === "ns") {
			const digits = value >= 100 || unit === "ns" ? 0 : value >= 10 ? 1 : 2;
			return `${value.toFixed(digits)} ${unit}`;
		}
	}
	return "0 ns";
}

/**
 * A moment, as exactly as a step of `resolution` nanoseconds needs.
 * @param {number} ns
 * @param {number} resolution
 */
export function moment(ns, resolution) {
	const digits = Math.min(9, Math.max(0, Math.ceil(-Math.log10(Math.max(resolution, 1) / 1e9))));
	return `${(ns / 1e9).toFixed(digits)} s`;
}

/** @param {number} number */
export function count(number) {
	return number.toLocaleString("en");
}

/**
 * An element with text, which is never taken for HTML.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {string} [text]
 * @param {string} [kind]
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function element(tag, text = "", kind = "") {
	const made = document.createElement(tag);
	made.textContent = text;
	made.className = kind;
	return made;
}

/**
 * @param {string} id
 * @returns {HTMLElement}
 */
export function byId(id) {
	const found = document.getElementById(id);
	if (!found) {
		throw new Error(`no element ${id}`);
	}
	return found;
}

/**
 * Whether a name has a part, or matches a pattern with * and ?.
 * @param {string} pattern
 * @returns {(name: string) => boolean}
 */
export function matcher(pattern) {
	const wanted = pattern.toLowerCase();
	if (!/[*?]/.test(wanted)) {
		return name => name.toLowerCase().includes(wanted);
	}
	const escaped = wanted.replace(/[.+^${}()|[\]\\]/g, "\\$&");
	const glob = new RegExp(`^${escaped.replace(/\*/g, ".*").replace(/\?/g, ".")}$`);
	return name => glob.test(name.toLowerCase());
}

/**
 * A self time, marked where it may have in it that of callees that were counted or off.
 * @param {string} own
 * @param {boolean} [isWithUntimed]
 */
export function withUntimed(own, isWithUntimed) {
	return `${own}${isWithUntimed ? " †" : ""}`;
}

// Colours of functions: the same function has the same one everywhere, in each trace.

/** @typedef {[number, number, number]} Color */

/**
 * @param {number} hue 0 to 1
 * @param {number} saturation
 * @param {number} lightness
 * @returns {Color}
 */
function rgb(hue, saturation, lightness) {
	const strength = saturation * Math.min(lightness, 1 - lightness);
	const channel = (/** @type {number} */ offset) => {
		const at = (offset + hue * 12) % 12;
		return Math.round(255 * (lightness - strength * Math.max(-1, Math.min(at - 3, 9 - at, 1))));
	};
	return [channel(0), channel(8), channel(4)];
}

/** @param {string} text */
function hash(text) {
	let value = 0x811c9dc5;
	for (let at = 0; at < text.length; at++) {
		value = Math.imul(value ^ text.charCodeAt(at), 0x01000193);
	}
	return value >>> 0;
}

/**
 * @param {string} name
 * @returns {Color}
 */
export function colorOf(name) {
	const value = hash(name);
	return rgb((value & 0xfff) / 0x1000, 0.5 + (value >>> 12 & 0xff) / 850, 0.6 + (value >>> 20 & 0xff) / 1600);
}

/** @param {Color} color */
export function css([red, green, blue]) {
	return `rgb(${red} ${green} ${blue})`;
}

/**
 * A colour of the page's style.
 * @param {string} name
 */
export function styled(name) {
	return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/**
 * @param {string} text such as #15181d
 * @returns {Color}
 */
export function parse(text) {
	const value = Number.parseInt(text.slice(1), 16);
	return [value >> 16 & 255, value >> 8 & 255, value & 255];
}

/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Where instructions end, and which of them lead elsewhere. Unknown instructions are refused.
 */
#include "library.h"

/* The parts that follow an opcode. */
enum {
	NONE = 0,
	MODRM = 1,
	BYTE = 2,               /* an immediate */
	WORD = 4,               /* of 2 bytes */
	LONG = 8,               /* of 4 bytes, or of 2 with the prefix 66 */
	RELATIVE = 16,          /* with BYTE or LONG: to the end of the instruction */
	BAD = 32,
};

#define LONGEST 15

struct reader {
	const uint8_t *bytes;
	uint32_t room, at;
	bool ended;
};

static uint8_t next(struct reader *reader)
{
	if (reader->at >= reader->room) {
		reader->ended = true;
		return 0;
	}
	return reader->bytes[reader->at++];
}

static int64_t signed_number(struct reader *reader, uint32_t bytes)
{
	uint64_t value = 0;
	for (uint32_t i = 0; i < bytes; i++)
		value |= (uint64_t)next(reader) << (8 * i);
	return (int64_t)(value << (64 - 8 * bytes)) >> (64 - 8 * bytes);
}

static unsigned after_one_byte(uint8_t opcode)
{
	if (opcode < 0x40)
		return (opcode & 7) < 4 ? MODRM : (opcode & 7) == 4 ? BYTE : (opcode & 7) == 5 ? LONG : BAD;
	if (opcode < 0x60)
		return NONE;
	switch (opcode) {
	case 0x60 ... 0x62: case 0x82: case 0x9a: case 0xce: case 0xd4 ... 0xd6: case 0xea:
		return BAD;
	case 0x63: case 0x84 ... 0x8f: case 0xd0 ... 0xd3: case 0xd8 ... 0xdf: case 0xf6: case 0xf7: case 0xfe: case 0xff:
		return MODRM;
	case 0x68: case 0xa9:
		return LONG;
	case 0x69: case 0x81: case 0xc7:
		return MODRM | LONG;
	case 0x6a: case 0xa8: case 0xb0 ... 0xb7: case 0xcd: case 0xe4 ... 0xe7:
		return BYTE;
	case 0x6b: case 0x80: case 0x83: case 0xc0: case 0xc1: case 0xc6:
		return MODRM | BYTE;
	case 0x70 ... 0x7f: case 0xe0 ... 0xe3: case 0xeb:
		return RELATIVE | BYTE;
	case 0xe8: case 0xe9:
		return RELATIVE | LONG;
	case 0xc2: case 0xca:
		return WORD;
	case 0xc8:
		return WORD | BYTE;
	default:
		return NONE;
	}
}

/* The parts of an instruction whose opcode follows 0f; the same with VEX and EVEX. */
static unsigned after_two_bytes(uint8_t opcode)
{
	switch (opcode) {
	case 0x04: case 0x0a: case 0x0c: case 0x0f: case 0x24 ... 0x27: case 0x36: case 0x39: case 0x3b ... 0x3f: case 0xa6:
	case 0xa7:
		return BAD;
	case 0x05 ... 0x09: case 0x0b: case 0x0e: case 0x30 ... 0x35: case 0x37: case 0x77: case 0xa0 ... 0xa2:
	case 0xa8 ... 0xaa: case 0xc8 ... 0xcf:
		return NONE;
	case 0x80 ... 0x8f:
		return RELATIVE | LONG;
	case 0x70 ... 0x73: case 0xa4: case 0xac: case 0xba: case 0xc2: case 0xc4 ... 0xc6:
		return MODRM | BYTE;
	default:
		return MODRM;
	}
}

static unsigned of_map(unsigned map, uint8_t opcode)
{
	switch (map) {
	case 1:
		return after_two_bytes(opcode) & ~RELATIVE;
	case 2: case 5: case 6:
		return MODRM;
	case 3:
		return MODRM | BYTE;
	default:
		return BAD;
	}
}

static void read_memory(struct reader *reader, struct instruction *found, uint8_t modrm)
{
	unsigned mode = modrm >> 6, base = modrm & 7;
	if (mode == 3)
		return;
	bool indexed = base == 4;
	if (indexed)
		base = next(reader) & 7;
	found->distance_at = (uint8_t)reader->at;
	if (mode == 0 && base == 5) {
		found->distance = signed_number(reader, 4);
		found->relative = !indexed;
	} else if (mode) {
		signed_number(reader, mode == 1 ? 1 : 4);
	}
}

static enum instruction_kind kind_of(uint8_t opcode, unsigned register_field)
{
	switch (opcode) {
	case 0xc2: case 0xc3:
		return INSTRUCTION_RETURN;
	case 0xe8:
		return INSTRUCTION_CALL;
	case 0x70 ... 0x7f: case 0xe0 ... 0xe3: case 0xe9: case 0xeb:
		return INSTRUCTION_JUMP;
	case 0xff:
		return register_field == 4 || register_field == 5 ? INSTRUCTION_UNKNOWN_JUMP :
		       register_field == 2 || register_field == 3 ? INSTRUCTION_CALL : INSTRUCTION_PLAIN;
	case 0xca: case 0xcb: case 0xcc: case 0xcd: case 0xcf: case 0xf1: case 0xf4:
		return INSTRUCTION_OTHER;
	default:
		return INSTRUCTION_PLAIN;
	}
}

bool instruction_at(const uint8_t *bytes, uint64_t room, uint64_t address, struct instruction *found)
{
	struct reader reader = { .bytes = bytes, .room = room < LONGEST ? (uint32_t)room : LONGEST };
	bool narrow = false, narrow_address = false, wide = false;
	uint8_t opcode = next(&reader);
	*found = (struct instruction){ .kind = INSTRUCTION_PLAIN };
	for (;; opcode = next(&reader)) {
		narrow |= opcode == 0x66;
		narrow_address |= opcode == 0x67;
		bool is_prefix = opcode == 0x66 || opcode == 0x67 || opcode == 0xf0 || opcode == 0xf2 || opcode == 0xf3 ||
				 (opcode & 0xe7) == 0x26 || opcode == 0x64 || opcode == 0x65;
		if (!is_prefix || reader.ended)
			break;
	}
	if ((opcode & 0xf0) == 0x40) {
		wide = opcode & 8;
		opcode = next(&reader);
		/* A prefix behind it would void it. */
		if ((opcode & 0xf0) == 0x40)
			return false;
	}
	unsigned after, register_field = 0;
	bool is_first_map = false;
	if (opcode == 0x0f) {
		opcode = next(&reader);
		if (opcode == 0x38 || opcode == 0x3a) {
			after = of_map(opcode == 0x38 ? 2 : 3, next(&reader));
		} else {
			after = after_two_bytes(opcode);
			if (after & RELATIVE)
				found->kind = INSTRUCTION_JUMP;
			else if (opcode == 0x05 || opcode == 0x07 || opcode == 0x0b || opcode == 0x34 || opcode == 0x35)
				found->kind = INSTRUCTION_OTHER;
		}
	} else if (opcode == 0xc5) {
		next(&reader);
		after = of_map(1, next(&reader));
	} else if (opcode == 0xc4) {
		unsigned map = next(&reader) & 0x1f;
		next(&reader);
		after = of_map(map, next(&reader));
	} else if (opcode == 0x62) {
		unsigned map = next(&reader) & 7;
		next(&reader);
		next(&reader);
		after = of_map(map, next(&reader));
	} else {
		after = after_one_byte(opcode);
		is_first_map = true;
	}
	if (after & BAD || (narrow && after & RELATIVE))
		return false;
	if (after & MODRM) {
		uint8_t modrm = next(&reader);
		register_field = modrm >> 3 & 7;
		read_memory(&reader, found, modrm);
		/* XOP, and transactions. */
		if (is_first_map && ((opcode == 0x8f && register_field) || ((opcode & 0xfe) == 0xc6 && register_field)))
			return false;
	}
	if (is_first_map) {
		found->kind = kind_of(opcode, register_field);
		if ((opcode & 0xfe) == 0xf6 && register_field < 2)
			after |= opcode == 0xf6 ? BYTE : LONG;
		if (opcode >= 0xb8 && opcode <= 0xbf)
			signed_number(&reader, wide ? 8 : narrow ? 2 : 4);
		if (opcode >= 0xa0 && opcode <= 0xa3)
			signed_number(&reader, narrow_address ? 4 : 8);
	}
	int64_t distance = 0;
	if (after & WORD)
		signed_number(&reader, 2);
	if (after & LONG)
		distance = signed_number(&reader, narrow ? 2 : 4);
	if (after & BYTE)
		distance = signed_number(&reader, 1);
	found->length = (uint8_t)reader.at;
	found->target = address + reader.at + (uint64_t)(found->relative ? found->distance : distance);
	found->direct = after & RELATIVE;
	return !reader.ended && !(narrow_address && found->relative);
}

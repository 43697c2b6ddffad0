/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The interface of the tool and the module through /dev/nopal, beside text: the plan of functions, its verdicts, and
 * the buffers. The module checks all that the tool writes. crates/kernel gets its names in Rust from here.
 *
 *   write   commands of the control language, a line each; an error is told by read
 *   read    the state, as commands that set it up again
 *   ioctl   NOPAL_DEVICE_PLAN, NOPAL_DEVICE_SITES, NOPAL_DEVICE_VERDICTS, NOPAL_DEVICE_MARKERS,
 *           NOPAL_DEVICE_PROBE, NOPAL_DEVICE_MODULES
 *   mmap    offset 0: struct nopal_region with its chunks
 */
#ifndef NOPAL_DEVICE_H
#define NOPAL_DEVICE_H

#ifndef __ASSEMBLER__
#include <stddef.h>
#include <stdint.h>
#endif

#define NOPAL_DEVICE_VERSION 3

/* The most functions of all plans together, and the most exits. */
#define NOPAL_DEVICE_FUNCTIONS 262144
#define NOPAL_DEVICE_EXITS 131072

/* A place where a function is left. */
#define NOPAL_EXIT_RETURN 1     /* c3 cc cc cc cc, or e9 and the distance to __x86_return_thunk */
#define NOPAL_EXIT_TAIL 2       /* e9 and a distance of four bytes, or eb, one of one byte, and three bytes of padding */

#ifndef __ASSEMBLER__

struct nopal_device_exit {
	uint64_t address;
	uint64_t target;            /* of a tail jump: where it leads */
	uint8_t kind;               /* NOPAL_EXIT_* */
	uint8_t expected[5];        /* the bytes there */
	uint16_t reserved;
};

struct nopal_device_function {
	uint64_t address;           /* its first byte */
	uint64_t end;               /* behind its last one */
	uint32_t first_exit;        /* in the exits of this plan; those of its cold part are among them */
	uint32_t exits;             /* 0: it never returns */
};

/* Why the module does not trace a function of a plan. */
#define NOPAL_VERDICT_TRACED 0
#define NOPAL_VERDICT_ADDRESS 1     /* it is not where a function begins that this kernel knows, or ftrace has no site there */
#define NOPAL_VERDICT_BYTES 2       /* the bytes of an exit are others than expected */
#define NOPAL_VERDICT_PLACE 3       /* an exit is not at an instruction of the function or of its cold part */
#define NOPAL_VERDICT_HELD 4        /* jump labels, static calls, alternatives or kprobes change these bytes */
#define NOPAL_VERDICT_NEVER 5       /* the recorder, or a path that must not be interrupted, needs it */
#define NOPAL_VERDICT_ROOM 6        /* there is no room for more exits or functions */
#define NOPAL_VERDICT_TWICE 7       /* an earlier plan holds it */
#define NOPAL_VERDICT_GONE 8        /* its module is being loaded, or was unloaded */
#define NOPAL_VERDICT_NEAR 9        /* another function's ftrace site is in the same 16 bytes */
#define NOPAL_VERDICT_TARGET 10     /* a return does not lead to a return thunk, a tail jump to no begin, or through r10 or r11 */

/* Modules that have come, counted while each is being loaded and again when it is. */
struct nopal_device_modules {
	uint32_t come;
	uint32_t planned;           /* as many as then had come when the kernel was read for the last plan; ~0: there is none */
};

struct nopal_device_plan {
	uint32_t version;           /* NOPAL_DEVICE_VERSION */
	uint32_t modules;           /* `come` before the kernel was read for this plan; if more have come, it is refused by EAGAIN */
	uint32_t function_count;
	uint32_t exit_count;
	uint32_t first_site;        /* out: site number of the first function; each has the next one, but those TWICE and GONE */
	uint32_t reserved;
	uint64_t functions;         /* addresses of arrays, functions in order of their addresses */
	uint64_t exits;
	uint64_t verdicts;          /* out: of a byte for each function */
};

/* The functions of all plans, by their site numbers. */
struct nopal_device_sites {
	uint32_t room;              /* for as many addresses */
	uint32_t count;             /* out: there are so many; the first one has site number 1 */
	uint64_t addresses;         /* out: of 8 bytes each; 0: it is not traced, or its module has gone */
};

/* The module's verdict on a function of a plan. */
struct nopal_device_verdict {
	uint64_t address;
	uint32_t verdict;           /* NOPAL_VERDICT_* */
	uint32_t reserved;
};

/* The verdicts on the functions of all plans, by their site numbers. */
struct nopal_device_verdicts {
	uint32_t room;              /* for as many of them */
	uint32_t count;             /* out: there are so many */
	uint64_t verdicts;          /* out: an address, of one after the other */
};

/* A marker of a module, followed by the module's name, its own name, its format and its file, each with a NUL. */
struct nopal_device_marker {
	uint32_t bytes;             /* with these; a multiple of 8 */
	uint32_t event;             /* its number in records */
	uint32_t types[2];          /* of its values: NOPAL_TYPE_* of include/nopal.h */
	uint32_t line;
	uint32_t is_there;          /* 0: its module was unloaded */
};

struct nopal_device_markers {
	uint32_t room;              /* bytes */
	uint32_t bytes;             /* out: of all; if these are more than there is room for, nothing is stored */
	uint64_t markers;           /* out: an address, of one after the other */
};

/* A probe to be made, off. The tool finds its address and what to fetch; the text is for readers of the state. */
struct nopal_device_probe {
	uint32_t version;           /* NOPAL_DEVICE_VERSION */
	uint32_t count;
	uint64_t fetches;           /* address of so many struct nopal_fetch */
	uint64_t address;           /* of an instruction */
	uint64_t text;              /* address of `probe WHERE new NAME [fetch ARGS]`, with a NUL */
	uint32_t event;             /* out: its number in records */
	uint32_t reserved;
};

#define NOPAL_DEVICE_PLAN 0xc0304e01u   /* _IOWR('N', 1, struct nopal_device_plan) */
#define NOPAL_DEVICE_SITES 0xc0104e02u  /* _IOWR('N', 2, struct nopal_device_sites) */
#define NOPAL_DEVICE_MARKERS 0xc0104e03u /* _IOWR('N', 3, struct nopal_device_markers) */
#define NOPAL_DEVICE_PROBE 0xc0284e04u  /* _IOWR('N', 4, struct nopal_device_probe) */
#define NOPAL_DEVICE_VERDICTS 0xc0104e05u /* _IOWR('N', 5, struct nopal_device_verdicts) */
#define NOPAL_DEVICE_MODULES 0x80084e06u /* _IOR('N', 6, struct nopal_device_modules) */

_Static_assert(sizeof(struct nopal_device_exit) == 24, "exit");
_Static_assert(sizeof(struct nopal_device_function) == 24, "function");
_Static_assert(sizeof(struct nopal_device_modules) == 8, "modules");
_Static_assert(sizeof(struct nopal_device_plan) == 48, "plan");
_Static_assert(sizeof(struct nopal_device_sites) == 16, "sites");
_Static_assert(sizeof(struct nopal_device_verdict) == 16, "verdict");
_Static_assert(sizeof(struct nopal_device_verdicts) == 16, "verdicts");
_Static_assert(sizeof(struct nopal_device_marker) == 24, "marker");
_Static_assert(sizeof(struct nopal_device_markers) == 16, "markers");
_Static_assert(sizeof(struct nopal_device_probe) == 40, "probe");
#endif

#endif

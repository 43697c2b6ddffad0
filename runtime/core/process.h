/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * What the runtime keeps inside one process: the process structure, which the tool fills in before the first site is
 * inserted, and a context for each thread. Both are private memory of the process; the contexts are wiped on fork.
 * crates/agent gets its names in Rust from here.
 */
#ifndef NOPAL_PROCESS_H
#define NOPAL_PROCESS_H

#include "abi.h"

/* Offsets in struct nopal_context that the thunks in arch/ use. */
#define NOPAL_CONTEXT_STACK_LOW 0
#define NOPAL_CONTEXT_STACK_SPAN 8
#define NOPAL_CONTEXT_POSITION 16
#define NOPAL_CONTEXT_CLOCK_HIGH 32
#define NOPAL_CONTEXT_TOKEN 36
#define NOPAL_CONTEXT_DEPTH 40
#define NOPAL_CONTEXT_SLOTS 96

#define NOPAL_CONTEXTS 8192         /* a power of two */
#define NOPAL_THREADS 16384         /* a power of two */
#define NOPAL_THREADS_NOTED 12288   /* at most at once; so whoever looks for one that is not noted comes to a free place */
#define NOPAL_THREAD_HASH 0x9e3779b1
#define NOPAL_THREAD_SHIFT 18       /* a hash's upper bits are a place among NOPAL_THREADS */
#define NOPAL_THREADS_CONTEXTS 131072 /* offset in struct nopal_threads */
#define NOPAL_STACK_PARTS 65536     /* a power of two */
#define NOPAL_STACK_PART_SHIFT 16   /* stacks are mirrored 64 KiB at a time */
#define NOPAL_BLOCKS 1024
#define NOPAL_UNWINDERS 64         /* at most 128: see NOPAL_UNWINDER_SHIFT */
#define NOPAL_DEPTH_LIMIT 256
#define NOPAL_BREAKPOINTS 256
#define NOPAL_UNWINDER_RESUME 32    /* offset in struct nopal_unwinder */
#define NOPAL_UNWINDER_BYTES 48
#define NOPAL_PROCESS_UNWINDERS 24648
#define NOPAL_UNWINDER_SHIFT 56     /* the landing pad gets an unwinder's number above the bits of an address */
#define NOPAL_ATTEMPTS_SHIFT 4
#define NOPAL_ATTEMPT_SHIFT 32      /* above a record's word: how often its thread has begun again */

#ifndef __ASSEMBLER__

/* [low, low + span). Changed by one instruction, by the rules above nopal_prepare: a range that is half one stack's and
 * half another's would allow a store where no mirror is. With a span of 0, low is the part without a mirror that the
 * last event was in, or a number that tells this range from others. */
struct nopal_range {
	_Alignas(16) uint64_t low;
	uint64_t span;
};

/* One thread's recording state. Written by its own thread only, also from that thread's signal handlers. All zero
 * after fork: the stack check then fails and the slow path makes the context anew. */
struct nopal_context {
	struct nopal_range stack; /* slots in here are mirrored; all others go the slow path */
	uint64_t position;      /* address of the next record; a multiple of the chunk size: none or full */
	uint64_t switches;      /* chunks so far. Changed with the position, by one instruction, when another chunk begins */
	uint32_t clock_high;    /* upper half of the counter in this chunk so far */
	uint32_t token;         /* the thread id in the control block when this context was made: an address alone may be a later thread's */
	uint32_t depth;         /* with a depth limit: wrapped frames alive, their slots in `slots` */
	uint32_t thread;        /* as the kernel numbers it */
	uint32_t process;
	uint32_t reason;        /* NOPAL_RESYNC_* that a hook asked for; 0: none */
	uint64_t pointer;       /* the thread pointer that this context belongs to; 0: free; CLAIMED while it begins or is freed */
	uint64_t begin;         /* counter when the thread was first seen */
	uint64_t discarded;     /* events lost so far */
	uint16_t muted;         /* the clock must not be read, nor anything be recorded */
	uint8_t owes_hole;      /* events were lost here, and handlers kept the chunk from saying so */
	uint8_t waiting;        /* in the bounded wait for a free chunk: a handler that comes in between must not wait */
	uint32_t found_none;    /* region->freed before a search that found no chunk free: unless it has changed, none is; 0: unknown */
	uint64_t forgotten;     /* ranges given up so far, times 2 */
	uint64_t slots[NOPAL_DEPTH_LIMIT];
};

/* The thread pointers that are known to be threads', and at the same places these threads' contexts. They are nowhere
 * else: where a thread pointer leads that a program has put elsewhere may be no memory, or the program's. */
struct nopal_threads {
	uint64_t pointers[NOPAL_THREADS];   /* 0: free */
	struct nopal_context *contexts[NOPAL_THREADS];
};
#define NOPAL_THREAD_CLAIMED (1ull << 63)   /* in a pointer whose context is not there yet: no thread pointer is like that */
#define NOPAL_THREAD_NONE (~0ull)           /* the first place's, which the tool puts there: a thread pointer of 0 is no free place */

/* What a part of a stack is. Its word in the table is its number times the count of these, plus this. */
enum nopal_part {
	NOPAL_PART_ABSENT,
	NOPAL_PART_PENDING,     /* a thread maps its mirror */
	NOPAL_PART_MIRRORED,
	NOPAL_PART_REFUSED,
	NOPAL_PART_STATES,
};

/* Generated code that the unwinder must be told about: [low, high), described by the .eh_frame_hdr at `header`. */
struct nopal_block {
	uint64_t low;
	uint64_t high;
	uint64_t header;
};

/* A module that unwinds, and what the personality routine needs of it. Several may live in one process. */
struct nopal_unwinder {
	uint64_t low;
	uint64_t high;
	uint64_t set_register;  /* _Unwind_SetGR */
	uint64_t set_address;   /* _Unwind_SetIP */
	uint64_t resume;        /* _Unwind_Resume */
	uint64_t get_address;   /* _Unwind_GetIP */
};

/* A breakpoint that leads to a probe's detour. */
struct nopal_breakpoint {
	uint64_t address;
	uint64_t detour;
};

/* What a process does at a SIGTRAP. Written by the tool, while all threads stand still. */
struct nopal_traps {
	uint64_t count;                     /* of breakpoints, also of those that are gone: a thread may have met one before */
	uint64_t ours[4];                   /* the action of SIGTRAP, as the kernel has it; 0: it is still the program's */
	uint64_t before[4];                 /* what it was */
	struct nopal_breakpoint breakpoints[NOPAL_BREAKPOINTS];
};

struct nopal_process {
	struct nopal_region *region;
	struct nopal_context *contexts;     /* NOPAL_CONTEXTS of them, wiped on fork */
	uint64_t *stack_parts;              /* NOPAL_STACK_PARTS words: see enum nopal_part */
	struct nopal_threads *threads;      /* not wiped on fork */
	int64_t mirror;                     /* address of a slot's mirror minus the slot's; a multiple of a stack part; 0: no stack is mirrored */
	uint32_t threads_noted;             /* their number */
	int32_t thread_slot;                /* offset of the 32-bit thread id in the thread's control block */
	uint32_t quiet;                     /* make no system call: seccomp may be on. Set by the tool or by the hook, never cleared */
	uint32_t process;                   /* its id when the tool came; a forked child finds another one */
	uint32_t depth_limit;               /* 0: none */
	uint32_t tracer;                    /* process that forked children allow to trace them; 0: needless */
	uint32_t block_count;               /* published with release after the block is filled in */
	uint32_t unwinder_count;            /* the same */
	struct nopal_block blocks[NOPAL_BLOCKS];
	struct nopal_unwinder unwinders[NOPAL_UNWINDERS];
	struct nopal_traps traps;
};

_Static_assert(offsetof(struct nopal_context, position) == NOPAL_CONTEXT_POSITION, "context");
_Static_assert(offsetof(struct nopal_context, position) % 16 == 0 &&
	       offsetof(struct nopal_context, switches) == NOPAL_CONTEXT_POSITION + 8, "context");
_Static_assert(offsetof(struct nopal_context, stack.low) == NOPAL_CONTEXT_STACK_LOW, "context");
_Static_assert(offsetof(struct nopal_context, stack.span) == NOPAL_CONTEXT_STACK_SPAN, "context");
_Static_assert(offsetof(struct nopal_context, clock_high) == NOPAL_CONTEXT_CLOCK_HIGH, "context");
_Static_assert(offsetof(struct nopal_context, token) == NOPAL_CONTEXT_TOKEN, "context");
_Static_assert(offsetof(struct nopal_context, slots) == NOPAL_CONTEXT_SLOTS, "context");
_Static_assert(offsetof(struct nopal_context, depth) == NOPAL_CONTEXT_DEPTH, "context");
_Static_assert(offsetof(struct nopal_threads, contexts) == NOPAL_THREADS_CONTEXTS, "thread");
_Static_assert(NOPAL_THREADS == 1ull << (32 - NOPAL_THREAD_SHIFT), "thread");
_Static_assert(offsetof(struct nopal_unwinder, resume) == NOPAL_UNWINDER_RESUME, "unwinder");
_Static_assert(sizeof(struct nopal_unwinder) == NOPAL_UNWINDER_BYTES, "unwinder");
_Static_assert(offsetof(struct nopal_process, unwinders) == NOPAL_PROCESS_UNWINDERS, "process");

/* The process that this code runs in. On a host it is a word in the agent's image that the tool fills in. */
extern struct nopal_process *const volatile nopal_process __attribute__((visibility("hidden")));

#endif
#endif

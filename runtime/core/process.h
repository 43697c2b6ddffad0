/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The runtime's state inside one process: the process structure, which the tool fills in before the first site is
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
#define NOPAL_THREADS_NOTED 12288   /* at most at once; so a search for an unknown one ends at a free place */
#define NOPAL_THREAD_HASH 0x9e3779b1
#define NOPAL_THREAD_SHIFT 18       /* the upper bits of a hash are a place among NOPAL_THREADS */
#define NOPAL_THREADS_CONTEXTS 131072 /* offset in struct nopal_threads */
#define NOPAL_COUNTED_STACKS 256    /* a power of two */
#define NOPAL_COUNTED_SHIFT 24      /* the upper bits of a hash are a place among them */
#define NOPAL_COUNTED_COUNTERS 2048 /* offset in struct nopal_counted */
#define NOPAL_COUNTED_PAGE_SHIFT 12 /* pages of stacks: memory that no two threads are on */
#define NOPAL_STACK_PARTS 65536     /* a power of two */
#define NOPAL_STACK_PART_SHIFT 16   /* stacks are mirrored in parts of 64 KiB */
#define NOPAL_BLOCKS 1024
#define NOPAL_UNWINDERS 64         /* at most 128: see NOPAL_UNWINDER_SHIFT */
#define NOPAL_DEPTH_LIMIT 256
#define NOPAL_BREAKPOINTS 256
#define NOPAL_UNWINDER_RESUME 32    /* offset in struct nopal_unwinder */
#define NOPAL_UNWINDER_BYTES 48
#define NOPAL_PROCESS_UNWINDERS 41096
#define NOPAL_UNWINDER_SHIFT 56     /* the landing pad gets an unwinder's number in the bits above an address */
#define NOPAL_ATTEMPTS_SHIFT 4
#define NOPAL_ATTEMPT_SHIFT 32      /* above a record's word: the number of retries */

#ifndef __ASSEMBLER__

/* [low, low + span). Changed by one instruction, by the rules above nopal_prepare: a range with halves from two stacks
 * would permit a store without a mirror. With a span of 0, low is the part without a mirror in which the last event
 * was, or a number unique to this range. */
struct nopal_range {
	_Alignas(16) uint64_t low;
	uint64_t span;
};

/* One thread's recording state. Written by its own thread only, also from that thread's signal handlers. All zero after
 * fork: the stack check then fails, and the slow path makes a new context. */
struct nopal_context {
	struct nopal_range stack; /* slots in this range are mirrored; all others take the slow path */
	uint64_t position;      /* address of the next record; a multiple of the chunk size: none or full */
	uint64_t switches;      /* number of chunks so far. Changed together with the position, by one instruction, when another chunk begins */
	uint32_t clock_high;    /* current upper half of the counter in this chunk */
	uint32_t token;         /* the thread id in the control block when this context was made: a later thread may have the same address */
	uint32_t depth;         /* with a depth limit: number of open wrapped frames, with their slots in `slots` */
	uint32_t thread;        /* as the kernel numbers it */
	uint32_t process;
	uint32_t reason;        /* NOPAL_RESYNC_* requested by a hook; 0: none */
	uint64_t pointer;       /* the thread pointer that this context belongs to; 0: free; CLAIMED while it begins or is freed */
	uint64_t begin;         /* counter when the thread was first seen */
	uint64_t discarded;     /* events lost so far */
	uint16_t muted;         /* the clock may not be read, and nothing is recorded */
	uint8_t owes_hole;      /* events were lost here, and handlers kept us from marking it in the chunk */
	uint8_t waiting;        /* in the bounded wait for a free chunk: a handler that interrupts it must not wait */
	uint32_t found_none;    /* region->freed before a search that found no free chunk: unless it changes, there is none; 0: unknown */
	uint64_t forgotten;     /* ranges dropped so far, times 2 */
	uint64_t slots[NOPAL_DEPTH_LIMIT];
};

/* The known thread pointers, and at the same places the contexts of their threads. The table is separate from the
 * control blocks, since a thread pointer that a program has changed may lead to no memory, or to memory of the program.
 */
struct nopal_threads {
	uint64_t pointers[NOPAL_THREADS];   /* 0: free */
	struct nopal_context *contexts[NOPAL_THREADS];
};
#define NOPAL_THREAD_CLAIMED (1ull << 63)   /* in a pointer whose context is not ready: real thread pointers are aligned */
#define NOPAL_THREAD_NONE (~0ull)           /* in the first place, set by the tool: a thread pointer of 0 must not match a free place */

/* The counters of a group's calls: one set for each page of a stack, by its address >> NOPAL_COUNTED_PAGE_SHIFT. Only a
 * thread that is on a page of a stack looks for it, so no other changes its entry. All zero after fork. */
struct nopal_counted {
	uint64_t stacks[NOPAL_COUNTED_STACKS];      /* 0: free */
	uint64_t *counters[NOPAL_COUNTED_STACKS];
};
#define NOPAL_COUNTED_CLAIMED (1ull << 63)  /* in a page that has no counters, or none yet */

/* The state of a part of a stack. Its word in the table is its number times NOPAL_PART_STATES, plus this state. */
enum nopal_part {
	NOPAL_PART_ABSENT,
	NOPAL_PART_PENDING,     /* a thread maps its mirror */
	NOPAL_PART_MIRRORED,
	NOPAL_PART_REFUSED,
	NOPAL_PART_STATES,
};

/* Generated code that the unwinder must find: [low, high), described by the .eh_frame_hdr at `header`. The jumps that
 * lead to it are in [text_low, text_high). */
struct nopal_block {
	uint64_t low;
	uint64_t high;
	uint64_t header;
	uint64_t text_low;
	uint64_t text_high;
};

/* An unwinding module, with the functions that the personality routine calls. A process may have several. */
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

/* The breakpoints of a process, for the SIGTRAP handler. Written by the tool while all threads are stopped. */
struct nopal_traps {
	uint64_t count;                     /* number of breakpoints, including removed ones: a thread may have hit one before */
	uint64_t ours[4];                   /* the kernel's action of SIGTRAP; 0: it is still the program's */
	uint64_t before[4];                 /* the previous action */
	struct nopal_breakpoint breakpoints[NOPAL_BREAKPOINTS];
};

struct nopal_process {
	struct nopal_region *region;
	uint64_t state_offset;              /* the region's parts, as it was made */
	uint64_t chunk_offset;
	struct nopal_context *contexts;     /* NOPAL_CONTEXTS of them, wiped on fork */
	uint64_t *stack_parts;              /* NOPAL_STACK_PARTS words: see enum nopal_part */
	struct nopal_threads *threads;      /* not wiped on fork */
	struct nopal_counted *counted;      /* NOPAL_COUNTER_GROUPS of them, wiped on fork */
	uint64_t counter_offset;            /* from the region's begin, as it was made */
	int64_t mirror;                     /* distance from a slot to its mirror; a multiple of a stack part; 0: no stack is mirrored */
	const uint32_t *loader_state;       /* not 0 while the loader changes its list of libraries; 0: not known */
	uint64_t mappings_left;             /* how many more the mirrors may take of those that the kernel allows the process */
	uint32_t threads_noted;             /* their number */
	int32_t thread_slot;                /* offset of the 32-bit thread id in the thread's control block */
	/* Make no system call: seccomp may be on, or system calls may be dispatched to the program. Set by the tool or by the
	 * hook, never cleared. */
	uint32_t quiet;
	uint32_t process;                   /* its id when tracing began; a forked child has another one */
	uint32_t depth_limit;               /* 0: none */
	uint32_t tracer;                    /* process that forked children permit to trace them; 0: not needed */
	uint32_t block_count;               /* published with release after the block is filled in */
	uint32_t unwinder_count;            /* the same */
	uint32_t chunk_limit;               /* chunks that the region has room for */
	uint32_t code_stays;                /* generated code stays mapped when nopal leaves: the program may have its addresses */
	uint32_t text_is_back;              /* nopal leaves, and the text has no jumps of functions and probes any more */
	uint32_t unused;
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
_Static_assert(offsetof(struct nopal_counted, counters) == NOPAL_COUNTED_COUNTERS, "counted");
_Static_assert(NOPAL_COUNTED_STACKS == 1ull << (32 - NOPAL_COUNTED_SHIFT), "counted");
_Static_assert(NOPAL_THREADS == 1ull << (32 - NOPAL_THREAD_SHIFT), "thread");
_Static_assert(offsetof(struct nopal_unwinder, resume) == NOPAL_UNWINDER_RESUME, "unwinder");
_Static_assert(sizeof(struct nopal_unwinder) == NOPAL_UNWINDER_BYTES, "unwinder");
_Static_assert(offsetof(struct nopal_process, unwinders) == NOPAL_PROCESS_UNWINDERS, "process");

/* The process that this code runs in. In a program, the tool fills in this word of the agent's image. */
extern struct nopal_process *const volatile nopal_process __attribute__((visibility("hidden")));

#endif
#endif

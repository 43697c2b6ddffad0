/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * The layout that the runtime (C), the tool (Rust, crates/abi) and the trace files share.
 *
 * Grows only by: a new record kind, a new extended event, a new field in place of a reserved one. Anything else raises
 * NOPAL_ABI_VERSION, and so does a change of the description that generated code keeps of its sites (struct Stored of
 * crates/record). All values are little-endian. docs/trace-format.md describes the same for readers; crates/abi gets
 * its names in Rust from here.
 */
#ifndef NOPAL_ABI_H
#define NOPAL_ABI_H

#ifndef __ASSEMBLER__
#include <stddef.h>
#include <stdint.h>
#endif

#define NOPAL_ABI_VERSION 11

/* ---- Records -------------------------------------------------------------------------------------------------
 *
 * A record is one 8-byte word, or several. The first word:
 *
 *   bits  0..31   low half of the time stamp counter
 *   bits 32..35   kind
 *   bits 36..55   site number, 1 .. NOPAL_SITE_LIMIT - 1
 *   bits 56..63   frame tag: bits 4..11 of the address of the slot that holds the return address
 *
 * A first word whose upper half is 0 has not been written. The lower half is stored first, the upper half last. Of
 * records of several words, the upper half is stored first with a PENDING kind (which gives their length), then the
 * other words, then the upper half again with the final kind.
 */
#define NOPAL_KIND_NONE 0           /* not written */
#define NOPAL_KIND_ENTRY 1          /* a wrapped call: an exit follows */
#define NOPAL_KIND_EXIT 2
#define NOPAL_KIND_TAIL 3           /* entered by a jump from a wrapped function: ends when that one does */
#define NOPAL_KIND_ONLY 4           /* entry without wrapping: no exit follows */
#define NOPAL_KIND_ENTRY_ARGS 5     /* as 1, 3 and 4, then 6 words: the integer arguments */
#define NOPAL_KIND_TAIL_ARGS 6
#define NOPAL_KIND_ONLY_ARGS 7
#define NOPAL_KIND_EXIT_RESULT 8    /* as 2, then 1 word: the integer result */
#define NOPAL_KIND_UNWIND 9         /* an exit by exception, forced unwinding or cancellation */
#define NOPAL_KIND_PENDING_ARGS 10  /* 6 words follow that may not be written: the call happened, arguments unknown */
#define NOPAL_KIND_PENDING_RESULT 11 /* 1 word follows that may not be written: the exit happened, result unknown */
#define NOPAL_KIND_HOLE 12          /* records are missing: put where one was lost, and by the tool where a word was reserved
                                       and never written */
#define NOPAL_KIND_CALL_SITE 13     /* before an entry of the same site and tag: 1 word follows, the address that it returns to */
#define NOPAL_KIND_PENDING_CALL_SITE 14 /* 1 word follows that may not be written */
#define NOPAL_KIND_EXTENDED 15      /* bits 36..63 of the word are the event id; then a 64-bit clock; then its fields */

#define NOPAL_SITE_LIMIT 0x100000
#define NOPAL_ARGUMENTS 6

/* Extended events. An event's number has two parts: bits 0..19 tell which event it is, bits 20..27 how long its records
 * are: 0, as the event's own definition says; 1 .. 254, one less is the number of words that follow the clock;
 * NOPAL_EVENT_VARIABLE, the word that follows the clock holds how many do, itself included, in its lower half. */
#define NOPAL_EVENT_RESYNC 16
#define NOPAL_EVENT_SHORT_CALLS 17  /* put by the tool: calls that it left out, by site */
#define NOPAL_EVENT_DEFINED 32      /* from here on: events that a note of the trace defines, as those of markers */
#define NOPAL_EVENT_LIMIT 0x100000
#define NOPAL_EVENT_WORDS_SHIFT 20
#define NOPAL_EVENT_VARIABLE 255

/* Text and bytes in a record: a word that holds how many bytes follow in its lower half and how many were left out in
 * its upper half, then the bytes, in whole words. Of text that ends with NUL, no more are counted than this limit. */
#define NOPAL_TEXT_LIMIT 4096       /* bytes of one text in a record */
#define NOPAL_TEXT_COUNTED 65536

#define NOPAL_RESYNC_CHUNK 1        /* first record of a chunk */
#define NOPAL_RESYNC_CLOCK 2        /* the upper half of the counter changed */
#define NOPAL_RESYNC_STACK 3        /* another stack, or a part of it not seen before */
#define NOPAL_RESYNC_JUMP 4         /* after longjmp, a switch of contexts, or a landing pad */
#define NOPAL_RESYNC_PART 5         /* put by the tool where it has written the chunk's records before this already */

#define NOPAL_RESYNC_BYTES 48

/* ---- Chunks --------------------------------------------------------------------------------------------------
 *
 * A chunk is NOPAL_CHUNK_BYTES long and aligned to that, so a position that is a multiple of it is a full chunk
 * (or none). It starts with its header, then a RESYNC record, then records. The header is the packet header and
 * context of the trace file; the tool fills the fields marked (tool) when it writes the chunk out.
 */
#define NOPAL_CHUNK_SHIFT 16
#define NOPAL_CHUNK_BYTES (1 << NOPAL_CHUNK_SHIFT)
#define NOPAL_CHUNK_HEADER_BYTES 96

/* A chunk's state word. The bits above the mask tell owners apart: a thread that finds the chunk of one that ended
 * may hand it over only if the tool has not done so already and given it to a third. */
#define NOPAL_CHUNK_STATE_MASK 3u
#define NOPAL_CHUNK_FREE 0u         /* zeroed, in nobody's hands; only the tool makes a chunk free */
#define NOPAL_CHUNK_OWNED 1u        /* a thread writes into it */
#define NOPAL_CHUNK_FULL 2u         /* its thread has gone on to another one, or has ended */

#define NOPAL_REQUESTS 64
#define NOPAL_LOST_COUNTERS 64

/* Why an event is lost. A counter has all lost events, and those for each reason. */
#define NOPAL_LOST_ALL 0
#define NOPAL_LOST_NO_ROOM 1            /* no chunk was free */
#define NOPAL_LOST_UNKNOWN_THREAD 2     /* the thread pointer does not lead to a control block of the thread's own */
#define NOPAL_LOST_TOO_MANY_THREADS 3   /* no context was free */
#define NOPAL_LOST_NO_CLOCK 4           /* the thread may not read the clock */
#define NOPAL_LOST_INTERRUPTED 5        /* signal handlers have recorded in between, NOPAL_ATTEMPTS times */
#define NOPAL_LOST_REASONS 6

#define NOPAL_REQUEST_FREE 0u
#define NOPAL_REQUEST_CLAIMED 1u    /* a thread is filling it in */
#define NOPAL_REQUEST_WAITING 2u    /* the tool is asked */
#define NOPAL_REQUEST_DONE 3u       /* the tool has answered; the thread frees it */
#define NOPAL_REQUEST_GRANTED 4u    /* the same, and it has done what the thread asked for */
#define NOPAL_REQUEST_STATE 7u      /* the bits of these; those above count how often the place was taken: each request differs */
#define NOPAL_REQUEST_TAKEN 8u

#define NOPAL_REQUEST_LIBRARIES 1u      /* the list of loaded libraries changed (the loader's _dl_debug_state) */
#define NOPAL_REQUEST_EXEC 2u           /* the thread is about to exec; word: address of the path, 0: it has none */
#define NOPAL_REQUEST_LOCK 3u           /* mlockall has failed, perhaps because of nopal's memory; word: its flags */
#define NOPAL_REQUEST_TRAPS 4u          /* the program is about to look at the action of SIGTRAP, which is nopal's, or to set it */
#define NOPAL_REQUEST_TEXT 5u           /* the program is about to make text writable or to move it, perhaps with jumps; word: its address, descriptor: its pages; granted: these are out */
#define NOPAL_REQUEST_SECRET 6u         /* the process is about to become one that only root may trace, and so leave; granted: no function has a jump */
#define NOPAL_REQUEST_PAGE_BYTES 4096

/* ---- Counters ------------------------------------------------------------------------------------------------
 *
 * Calls of sites that are counted. A page has the counters of some sites whose numbers follow each other, in one page
 * of a stack: so it has one writer at a time, and a thread adds 1 without a lock. The pages begin behind a word for
 * each, which names its group of sites: the group's number plus 1; 0: none. The first pages are given out as they are
 * needed, and never taken back. When all are given out, a group's calls go to its last page, which threads share, by
 * locked additions.
 *
 * The lower bits of a counter are the number of calls, without those that were sampled: these are recorded. The upper
 * bits lead to the next of these: the step that overflows them counts a call that is to be sampled. */
#define NOPAL_COUNT_BITS 54
#define NOPAL_COUNT_STEP (1ull << NOPAL_COUNT_BITS | 1)
#define NOPAL_SAMPLE_DISTANCE (1 << (64 - NOPAL_COUNT_BITS)) /* of the first; from one to the next it is less */
#define NOPAL_COUNTER_SITES_SHIFT 9 /* a group is 512 sites: their counters of 8 bytes fill a page */
#define NOPAL_COUNTER_GROUPS (NOPAL_SITE_LIMIT >> NOPAL_COUNTER_SITES_SHIFT)
#define NOPAL_COUNTER_PAGES 2048    /* that are given out; behind them, one of each group is shared */
#define NOPAL_COUNTER_PAGE_BYTES 4096
#define NOPAL_COUNTERS_AT ((NOPAL_COUNTER_PAGES + NOPAL_COUNTER_GROUPS) * 4) /* where pages begin, from the words' begin */
#define NOPAL_COUNTERS_BYTES (NOPAL_COUNTERS_AT + (NOPAL_COUNTER_PAGES + NOPAL_COUNTER_GROUPS) * NOPAL_COUNTER_PAGE_BYTES)

#define NOPAL_NO_DESCRIPTOR -100    /* AT_FDCWD */

#define NOPAL_WHEN_FULL_DROP 0u
#define NOPAL_WHEN_FULL_BLOCK 1u

#ifndef __ASSEMBLER__

struct nopal_resync {
	uint32_t clock_low;
	uint32_t kind_and_event;    /* NOPAL_KIND_EXTENDED | NOPAL_EVENT_RESYNC << 4 */
	uint64_t clock;
	uint64_t slot;              /* address of the slot that holds the return address of the event that follows */
	uint64_t stack;             /* lowest address of the stack's known part */
	uint32_t process;
	uint32_t thread;
	uint32_t reason;
	uint32_t reserved;
};

struct nopal_chunk_header {
	uint32_t magic;             /* 0xC1FC1FC1 (tool) */
	uint32_t stream_id;         /* 0 (tool) */
	uint8_t uuid[16];           /* the name that the thread has given itself last, with zeroes behind, or none (runtime); of the trace (tool) */
	uint64_t clock_begin;       /* counter at the first record (runtime) */
	uint64_t clock_end;         /* bytes of the chunk before the last jump, 0: none (runtime); counter at the last record (tool) */
	uint64_t content_bits;      /* how much the thread had reserved when it handed the chunk over (runtime), how much it holds (tool) */
	uint64_t packet_bits;       /* (tool) */
	uint64_t discarded;         /* events of this thread lost before this chunk, since it began (runtime) */
	uint64_t sequence;          /* 0 for a thread's first chunk, then 1 more each (runtime) */
	uint32_t process;           /* (runtime) */
	uint32_t thread;            /* (runtime) */
	uint64_t thread_begin;      /* counter when the thread was first seen: tells threads of equal ids apart (runtime) */
	uint32_t checksum;          /* of header and records (tool) */
	uint32_t short_calls;       /* calls that were left out since they were short (tool) */
};

/* A request from a thread to the tool. The thread waits on `state` as a futex; bounded by the tool's heartbeat. */
struct nopal_request {
	uint32_t state;
	uint32_t what;
	uint32_t process;
	uint32_t thread;
	uint64_t word;
	int32_t descriptor;         /* what the path of an exec is relative to, or what is executed without a path */
	uint32_t reserved;
};

/* On a cache line of its own. */
struct nopal_lost_counter {
	uint64_t lost[NOPAL_LOST_REASONS];
	uint64_t pad[8 - NOPAL_LOST_REASONS];
};

/* The region: shared memory between the tool and one process image (and its forks). Followed by a state word for each
 * chunk at `state_offset` and the chunks at `chunk_offset`, both from the region's start. Those of programs end with
 * counters. */
struct nopal_region {
	uint32_t version;
	uint32_t chunk_count;       /* threads take the first ones only; may change while they do (tool) */
	uint64_t state_offset;
	uint64_t chunk_offset;
	uint32_t when_full;
	uint32_t tool_gone;         /* set by the tool or guardian that cleans up: record nothing more */
	uint32_t heartbeat;         /* the tool adds 1 every 10 ms, and later where a write takes longer */
	uint32_t bell;              /* a futex: threads add 1 and wake when a request waits */
	uint32_t threads_untraced;  /* threads that found no context free */
	uint32_t stacks_unmirrored; /* stack parts that are traced entry only */
	uint64_t threads_muted;     /* threads that may not read the clock: their events count as lost */
	uint64_t head;              /* address of the process structure, for those that find the region when the tool is gone (tool) */
	uint32_t tool;              /* process ids of the tool and the guardian (tool) */
	uint32_t guardian;
	struct nopal_lost_counter lost[NOPAL_LOST_COUNTERS]; /* exact, summed: events that were not recorded */
	struct nopal_request requests[NOPAL_REQUESTS];
	uint32_t first_free;        /* where the search for a free chunk begins: probably the first one */
	uint32_t freed;             /* a futex: begins at 1, incremented after each chunk that becomes free */
	uint32_t waited_in_vain;    /* `freed` when a thread last waited for a chunk in vain; 0: none has */
	uint32_t unanswered_executions; /* requests without an answer, after which the thread went on */
	uint32_t unanswered_libraries;
	uint32_t silent_since;      /* `heartbeat` when a thread last gave up a wait for the next one */
	uint32_t silences;          /* how often threads have given up at that one */
	uint32_t counter_pages;     /* how many have been asked for: as many are given out, or all */
};

_Static_assert(sizeof(struct nopal_resync) == NOPAL_RESYNC_BYTES, "resync");
_Static_assert(sizeof(struct nopal_chunk_header) == NOPAL_CHUNK_HEADER_BYTES, "chunk header");
_Static_assert(sizeof(struct nopal_request) == 32, "request");

#endif
#endif

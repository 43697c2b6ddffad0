/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Functions of the program's own at the entries of its functions. A place is a NOP of five bytes, or a call of a stub
 * that leads to library_hooked. This calls the hook itself if there is only one, and else the loop.
 */
#define _GNU_SOURCE
#include "library.h"

#include <cpuid.h>
#include <dirent.h>
#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hooked.h"
#include "poke_protocol.h"

#define CALL 0xe8
#define STUB_BYTES 14
#define PAGE 4096ull

struct hook {
	nopal_hook_function *function;
	size_t count;
	uint64_t *places;       /* ascending */
};

/* Constant once it is published, except for its end. */
struct hooks {
	size_t count;
	struct hook all[];
};

/* Published under library_lock; read by threads that are within a hook. */
static struct hooks *hooks;
/* The function that library_hooked calls. Stored under library_lock. */
nopal_hook_function *library_hook;
uint64_t library_hooks_cut_off;
/* Written before the program's first thread, by the constructor. */
uint8_t library_vectors = KEEP_VECTORS;

/* All places that were ever a call, ascending: a thread may still come from any of them. Under library_lock. */
static uint64_t *ever;
static size_t ever_count;

/* ---- threads within a hook ---- */

/* One for each address of a thread's control block so far; the next thread at that address takes it over. */
struct passing {
	_Alignas(64) bool within;       /* a hook. Of one thread, by plain stores */
	int32_t thread;
	uint64_t block;
};

#define PASSING 4096
/* Each is claimed atomically by the thread that then owns it. */
static struct passing all_passing[PASSING];
_Thread_local struct passing *library_passing __attribute__((tls_model("initial-exec"), visibility("hidden")));

static int32_t own_number(void)
{
	long number = SYS_gettid;
	__asm__ volatile("syscall" : "+a"(number) : : "rcx", "r11", "memory");
	return (int32_t)number;
}

/* Runs at the entry of any function: vector registers hold its arguments. */
struct passing *library_passing_of_thread(void)
{
	uint64_t block = (uint64_t)__builtin_thread_pointer();
	uint64_t first = (block * 0x9e3779b97f4a7c15u) >> 52;
	for (uint64_t i = 0; i < PASSING; i++) {
		struct passing *passing = &all_passing[(first + i) % PASSING];
		uint64_t owner = __atomic_load_n(&passing->block, __ATOMIC_RELAXED);
		if (!owner && __atomic_compare_exchange_n(&passing->block, &owner, block, false, __ATOMIC_RELAXED,
							  __ATOMIC_RELAXED))
			owner = block;
		if (owner != block)
			continue;
		/* The previous thread at this address may have ended within a hook. */
		__atomic_store_n(&passing->within, false, __ATOMIC_RELAXED);
		__atomic_store_n(&passing->thread, own_number(), __ATOMIC_RELAXED);
		library_passing = passing;
		return passing;
	}
	return 0;
}

/* Waits until all threads have left the hooks that they are in. */
static void wait_for_passing(void)
{
	/* Pairs with the order of library_hooked: a thread that is not within a hook now loads the published one. */
	syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
	for (unsigned i = 0; i < PASSING; i++) {
		const struct passing *passing = &all_passing[i];
		/* Threads that were killed within a hook do not count. */
		while (__atomic_load_n(&passing->within, __ATOMIC_ACQUIRE) &&
		       !syscall(SYS_tgkill, getpid(), passing->thread, 0))
			sched_yield();
	}
}

/* A forked child has only the thread that forked. */
static void after_fork(void)
{
	for (unsigned i = 0; i < PASSING; i++)
		if (&all_passing[i] != library_passing)
			all_passing[i].within = false;
	if (library_passing)
		library_passing->thread = own_number();
}

/* ---- several hooks ---- */

static bool has_place(const struct hook *hook, uint64_t place)
{
	size_t low = 0, high = hook->count;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (hook->places[middle] == place)
			return true;
		if (hook->places[middle] < place)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

static void loop(unsigned long place, unsigned long parent)
{
	const struct hooks *all = __atomic_load_n(&hooks, __ATOMIC_ACQUIRE);
	for (size_t i = 0; all && i < all->count; i++)
		if (has_place(&all->all[i], place))
			all->all[i].function(place, parent);
}

/* Publishes `new`, waits for threads that may still use the old one, and frees it. */
static void publish(struct hooks *new)
{
	struct hooks *old = hooks;
	__atomic_store_n(&hooks, new, __ATOMIC_RELEASE);
	bool alone = new->count == 1 && new->all[0].count == ever_count;
	__atomic_store_n(&library_hook, alone ? new->all[0].function : loop, __ATOMIC_RELEASE);
	wait_for_passing();
	free(old);
}

/* ---- the text ---- */

/* A jump within reach of a place that leads to library_hooked, at any distance. */
struct stub {
	struct stub *next;
	uint64_t address;
};
/* Under library_lock. They stay as long as the program. */
static struct stub *stubs;

static bool reaches(uint64_t place, uint64_t target)
{
	uint64_t distance = target > place ? target - place : place - target;
	return distance < REACH;
}

static uint64_t new_stub(uint64_t place)
{
	struct stub *stub = malloc(sizeof *stub);
	void *page = stub ? text_new_page(place) : 0;
	if (!page) {
		free(stub);
		return 0;
	}
	const uint64_t target = (uint64_t)library_hooked;
	uint8_t jump[STUB_BYTES] = { 0xff, 0x25 };
	memcpy(jump + 6, &target, sizeof target);
	memcpy(page, jump, sizeof jump);
	if (mprotect(page, PAGE, PROT_READ | PROT_EXEC)) {
		munmap(page, PAGE);
		free(stub);
		return 0;
	}
	*stub = (struct stub){ stubs, (uint64_t)page };
	stubs = stub;
	return stub->address;
}

static uint64_t stub_for(uint64_t place)
{
	for (const struct stub *stub = stubs; stub; stub = stub->next)
		if (reaches(place, stub->address))
			return stub->address;
	return new_stub(place);
}

static const uint8_t nop[] = ARCH_NOP;

static bool is_nop(const uint8_t *bytes)
{
	return !memcmp(bytes, nop, 4) && (bytes[4] == 0 || bytes[4] == 8);
}

static bool calls_stub(const uint8_t *bytes)
{
	int32_t distance;
	memcpy(&distance, bytes + 1, sizeof distance);
	uint64_t target = (uint64_t)bytes + ARCH_JUMP_BYTES + (uint64_t)(int64_t)distance;
	for (const struct stub *stub = stubs; bytes[0] == CALL && stub; stub = stub->next)
		if (stub->address == target)
			return true;
	return false;
}

/* NOPs that are one instruction of five bytes, or can become one, as compilers leave them for calls. */
static bool is_ready(uint64_t place)
{
	const uint8_t *bytes = (const uint8_t *)place;
	return place % 2 == 0 && (is_nop(bytes) || bytes[0] == CALL);
}

/* The length of other NOPs that compilers emit, which cannot be changed while other threads run them. */
static unsigned unready(const uint8_t *bytes)
{
	if (!memcmp(bytes, "\x90\x90\x90\x90\x90", 5) || is_nop(bytes) || bytes[0] == CALL)
		return 5;
	return (bytes[0] == 0xff && bytes[1] == 0x15) || (bytes[0] == 0x67 && bytes[1] == CALL) ? 6 : 0;
}

bool process_is_alone(void)
{
	DIR *threads = opendir("/proc/self/task");
	unsigned count = 0;
	for (struct dirent *entry; threads && (entry = readdir(threads));)
		count += entry->d_name[0] != '.';
	if (threads)
		closedir(threads);
	return count == 1;
}

/* Makes each place one NOP instruction, while no other thread can be running it. */
static void make_ready(const struct functions *found)
{
	if (!process_is_alone())
		return;
	change_begin();
	for (size_t i = 0; i < found->count; i++) {
		uint8_t *bytes = (uint8_t *)found->places[i];
		unsigned length = calls_stub(bytes) || is_nop(bytes) ? 0 : unready(bytes);
		if (!length || text_unprotect(found->places[i], PLACE_BYTES))
			continue;
		memcpy(bytes, nop, ARCH_JUMP_BYTES);
		if (length > ARCH_JUMP_BYTES)
			bytes[ARCH_JUMP_BYTES] = 0x90;
	}
	text_protect();
	change_end();
}

static int change(const uint64_t *places, size_t count, bool on)
{
	struct nopal_poke *pokes = calloc(count + 1, sizeof *pokes);
	if (!pokes)
		return -ENOMEM;
	uint32_t pokes_count = 0;
	for (size_t i = 0; i < count; i++) {
		const uint8_t *bytes = (const uint8_t *)places[i];
		if (calls_stub(bytes) == on)
			continue;
		struct nopal_poke *poke = &pokes[pokes_count++];
		poke->site = places[i];
		memcpy(poke->before, bytes, ARCH_JUMP_BYTES);
		if (on) {
			uint64_t stub = stub_for(places[i]);
			if (!stub) {
				free(pokes);
				return -ENOMEM;
			}
			arch_jump(poke->after, places[i], stub);
			poke->after[0] = CALL;
		} else {
			memcpy(poke->after, nop, ARCH_JUMP_BYTES);
		}
	}
	change_begin();
	int error = text_poke(pokes, pokes_count);
	change_end();
	free(pokes);
	return error;
}

/* ---- connecting ---- */

static void learn_vectors(void)
{
	const unsigned avx = 0x6, avx_512 = 0xe6;       /* of XCR0, with SSE */
	unsigned eax, ebx, ecx, edx, low, high;
	if (!__get_cpuid_count(1, 0, &eax, &ebx, &ecx, &edx) || !(ecx & bit_OSXSAVE) || !(ecx & bit_AVX))
		return;
	__asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	if ((low & avx) == avx)
		library_vectors = KEEP_AVX;
	if ((low & avx_512) == avx_512 && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && ebx & bit_AVX512F)
		library_vectors = KEEP_AVX_512;
}

__attribute__((constructor)) static void begin(void)
{
	struct functions found;
	learn_vectors();
	pthread_atfork(0, 0, after_fork);
	found_functions(0, &found);
	make_ready(&found);
	free(found.places);
}

static struct hooks *changed(size_t leave, const struct hook *join)
{
	size_t count = hooks ? hooks->count : 0;
	struct hooks *new = malloc(sizeof *new + (count + 1) * sizeof new->all[0]);
	if (!new)
		return 0;
	new->count = 0;
	for (size_t i = 0; i < count; i++)
		if (i != leave)
			new->all[new->count++] = hooks->all[i];
	if (join)
		new->all[new->count++] = *join;
	return new;
}

static int by_value(const void *a, const void *b)
{
	const uint64_t *one = a, *other = b;
	return *one < *other ? -1 : *one > *other;
}

static bool remember(const struct hook *hook)
{
	uint64_t *larger = realloc(ever, (ever_count + hook->count) * sizeof *ever);
	if (!larger)
		return false;
	ever = larger;
	const struct hook before = { .count = ever_count, .places = ever };
	for (size_t i = 0; i < hook->count; i++)
		if (!has_place(&before, hook->places[i]))
			ever[ever_count++] = hook->places[i];
	qsort(ever, ever_count, sizeof *ever, by_value);
	return true;
}

/* Keeps the places that can be changed while other threads run them. */
static int check(const char *pattern, struct functions *found)
{
	const char *name = pattern ? pattern : "*";
	if (found->out_of_memory)
		return library_failed(-ENOMEM, "no memory");
	if (!found->all)
		return library_failed(-ENOTSUP, "no function here can be hooked: they must be compiled with "
						"-fpatchable-function-entry=5");
	if (!found->count && found->named)
		return library_failed(-ENOTSUP, "\"%s\" has no room at its entry: it is NOPAL_NOTRACE, or was not compiled with "
						"-fpatchable-function-entry=5", name);
	if (!found->count && found->nearest.name[0])
		return library_failed(-ENOENT, "no function \"%s\"; the nearest is %s", name, found->nearest.name);
	if (!found->count)
		return library_failed(-ENOENT, "no function \"%s\"", name);
	size_t kept = 0;
	for (size_t i = 0; i < found->count; i++)
		if (is_ready(found->places[i]))
			found->places[kept++] = found->places[i];
	if (!kept)
		return library_failed(-EBUSY, "\"%s\" cannot be changed while threads run: it has less room than 5 "
					      "bytes, begins at an odd address (-falign-functions=16), or was loaded when "
					      "there were threads", name);
	found->count = kept;
	return 0;
}

static int join(const char *pattern, nopal_hook_function *function)
{
	for (size_t i = 0; hooks && i < hooks->count; i++)
		if (hooks->all[i].function == function)
			return library_failed(-EEXIST, "the hook is there already");
	struct functions found;
	found_functions(0, &found);
	make_ready(&found);
	free(found.places);
	found_functions(pattern, &found);
	int error = check(pattern, &found);
	if (error || found.count > INT32_MAX) {
		free(found.places);
		return error ? error : library_failed(-E2BIG, "too many functions");
	}
	const struct hook hook = { function, found.count, found.places };
	struct hooks *new = changed(SIZE_MAX, &hook);
	if (!new || !remember(&hook)) {
		free(new);
		free(found.places);
		return library_failed(-ENOMEM, "no memory");
	}
	publish(new);
	error = change(found.places, found.count, true);
	return error ? library_failed(error, "the text cannot be changed: %s", strerror(-error)) : (int)found.count;
}

/* Turns places without another hook back into NOPs. */
static int leave(size_t at)
{
	struct hook hook = hooks->all[at];
	struct hooks *new = changed(at, 0);
	uint64_t *alone = malloc((hook.count + 1) * sizeof *alone);
	if (!new || !alone) {
		free(new);
		free(alone);
		return library_failed(-ENOMEM, "no memory");
	}
	size_t count = 0;
	for (size_t i = 0; i < hook.count; i++) {
		bool others = !function_is_loaded(hook.places[i]);
		for (size_t j = 0; j < new->count; j++)
			others |= has_place(&new->all[j], hook.places[i]);
		if (!others)
			alone[count++] = hook.places[i];
	}
	int error = change(alone, count, false);
	publish(new);
	free(hook.places);
	free(alone);
	return error ? library_failed(error, "the text cannot be changed: %s", strerror(-error)) : 0;
}

static bool is_within(void)
{
	return library_passing && library_passing->within;
}

int nopal_hook(const char *functions, nopal_hook_function *hook)
{
	if (is_within() || grace_depth())
		return library_failed(-EDEADLK, "a hook cannot connect");
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0))
		return library_failed(-errno, "membarrier: %s", strerror(errno));
	pthread_mutex_lock(&library_lock);
	int result = join(functions, hook);
	if (result < 0)
		for (size_t i = 0; hooks && i < hooks->count; i++)
			if (result != -EEXIST && hooks->all[i].function == hook)
				leave(i);
	pthread_mutex_unlock(&library_lock);
	return result;
}

int nopal_unhook(nopal_hook_function *hook)
{
	if (is_within() || grace_depth())
		return library_failed(-EDEADLK, "a hook cannot wait until it has ended");
	pthread_mutex_lock(&library_lock);
	size_t at = 0;
	while (hooks && at < hooks->count && hooks->all[at].function != hook)
		at++;
	int result = hooks && at < hooks->count ? leave(at) : library_failed(-ENOENT, "the hook is not there");
	pthread_mutex_unlock(&library_lock);
	return result;
}

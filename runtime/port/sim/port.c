/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0 */
#include "sim.h"

struct sim sim;

void sim_reset(void)
{
	sim = (struct sim){ .clock_step = 1 };
}

bool sim_is_mapped(uint64_t address)
{
	for (uint32_t i = 0; i < sim.mappings; i++)
		if (address - sim.mapped[i] < sim.mapped_bytes[i])
			return true;
	return false;
}

uint64_t port_clock(void)
{
	sim.clock_reads++;
	return sim.clock += sim.clock_step;
}

bool port_clock_allowed(void)
{
	sim.system_calls++;
	return !sim.running->clock_faults;
}

uint32_t port_thread_id(void)
{
	sim.system_calls++;
	return sim.running->id;
}

uint32_t port_process_id(void)
{
	sim.system_calls++;
	return sim.process;
}

bool port_thread_ended(uint32_t process, uint32_t thread)
{
	sim.system_calls++;
	return process == sim.process && sim.has_ended && sim.has_ended(thread);
}

uintptr_t port_thread_pointer(void)
{
	return sim.astray ? sim.astray : (uintptr_t)sim.running;
}

bool port_readable(uintptr_t address)
{
	sim.system_calls++;
	return address - sim.unreadable >= SIM_UNREADABLE;
}

bool port_map_mirror(uintptr_t address, uint64_t bytes, uintptr_t slot)
{
	sim.system_calls++;
	if (slot - sim.unreadable < SIM_UNREADABLE || sim.mappings == SIM_MAPPINGS || sim_is_mapped(address) || (sim.may_map && !sim.may_map(address, bytes)))
		return false;
	sim.mapped[sim.mappings] = address;
	sim.mapped_bytes[sim.mappings++] = bytes;
	return true;
}

bool port_read(uint64_t address, void *to, uint32_t bytes)
{
	sim.system_calls++;
	if (address + bytes - 1 - sim.unreadable < SIM_UNREADABLE) {
		sim.faults++;
		return false;
	}
	__builtin_memcpy(to, (const void *)address, bytes);
	return true;
}

uint64_t port_block_signals(void)
{
	bool before = sim.running->signals_blocked;
	sim.system_calls++;
	sim.running->signals_blocked = true;
	return before;
}

void port_restore_signals(uint64_t saved)
{
	sim.system_calls++;
	sim.running->signals_blocked = saved;
}

bool port_wait(uint32_t *word, uint32_t value, uint64_t nanoseconds)
{
	uint64_t left = sim.signal_every ? sim.signal_every - sim.clock % sim.signal_every : nanoseconds;
	bool is_whole = left >= nanoseconds;
	sim.system_calls++;
	sim.clock += is_whole ? nanoseconds : left;
	if (sim.in_wait)
		sim.in_wait(word, value);
	return is_whole;
}

void port_wake(uint32_t *word)
{
	(void)word;
	sim.system_calls++;
	sim.wakes++;
}

void port_yield(void)
{
	sim.system_calls++;
}

void port_allow_tracer(uint32_t tracer)
{
	sim.system_calls++;
	sim.allowed_tracer = tracer;
}

#ifdef NOPAL_RACE_POINTS
void port_race_point(const char *name)
{
	if (sim.at_race_point)
		sim.at_race_point(name);
}
#endif

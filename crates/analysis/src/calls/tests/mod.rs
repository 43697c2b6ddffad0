mod hostile;
mod programs;
mod rules;
mod runs;
mod tape;

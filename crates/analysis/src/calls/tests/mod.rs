mod hostile;
mod programs;
mod reopened;
mod rules;
mod runs;
mod tape;

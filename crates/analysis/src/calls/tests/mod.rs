mod hostile;
mod programs;
mod rules;
mod tape;

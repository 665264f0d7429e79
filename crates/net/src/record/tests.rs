mod assembled;
mod piped;
mod stored;

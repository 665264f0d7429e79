//! Passes packets through a link in virtual time, without a wait in real time:
//! `cargo run -p manyways-link --example virtual_time`.

use manyways_link::{Output, Packet, Pipe};
use manyways_trace::scenario::{
    CapacitySpec, DelaySpec, DirectionSpec, Discipline, LossSpec, QueueLimit, QueueSpec,
};
use manyways_unit::{Rate, Size, Span, Time};

fn main() {
    let spec = DirectionSpec {
        capacity: CapacitySpec::Constant(Rate::from_mbps(10)),
        delay: DelaySpec::Constant(Span::from_millis(20)),
        jitter: Span::from_millis(1),
        reorder: false,
        loss: LossSpec::Independent(0.01),
        queue: QueueSpec {
            limit: QueueLimit::Time(Span::from_millis(10)),
            discipline: Discipline::DropTail,
        },
    };
    // The same seed and the same packets produce the same outputs.
    let mut pipe = Pipe::new(&spec, 1);
    let size = Size::from_bytes(1_500);
    // 12 Mbit/s for 10 Mbit/s of capacity: the queue fills.
    for id in 0..60 {
        let now = Time::from_millis(id);
        while let Some(wakeup) = pipe.next_wakeup().filter(|wakeup| *wakeup <= now) {
            print(&mut pipe, wakeup);
        }
        pipe.handle(now, Packet::single(id, size));
        print(&mut pipe, now);
    }
    while let Some(wakeup) = pipe.next_wakeup() {
        print(&mut pipe, wakeup);
    }
}

fn print(pipe: &mut Pipe, now: Time) {
    while let Some(output) = pipe.poll(now) {
        match output {
            Output::Deliver { at, id, .. } => {
                println!("{:>7.3} s packet {id} arrives", at.since(Time::ZERO).as_secs_f64());
            }
            Output::Drop { at, id, cause, .. } => {
                let secs = at.since(Time::ZERO).as_secs_f64();
                println!("{secs:>7.3} s packet {id} is dropped: {cause:?}");
            }
        }
    }
}

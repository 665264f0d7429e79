//! A radio whose properties are known.

/// The profile of a radio with three states, as TOML. After the last packet it leaves the states at
/// `timers`; `promotions` are the delays of the packet that finds it in the second or third state.
/// All are in seconds, with a resolution of 1 ms.
pub fn radio_profile(timers: [f64; 2], promotions: [f64; 2]) -> String {
    let millis = |secs: f64| format!("\"{:.0}ms\"", secs * 1e3);
    let [first, second] = [timers[0], timers[1] - timers[0]].map(millis);
    let [low, idle] = promotions.map(millis);
    let states = [
        ("high", format!("timer = {first}")),
        ("low", format!("timer = {second}\npromotion-delay = {low}")),
        ("idle", format!("promotion-delay = {idle}")),
    ];
    let states = states.map(|(name, more)| {
        format!("[[state]]\nname = \"{name}\"\npower = \"1W\"\nsource = \"made up\"\n{more}\n")
    });
    let head = "title = \"A radio with short timers\"\ntechnology = \"3g\"\n\
                [transfer]\nsend = \"1W\"\nreceive = \"1W\"\nsource = \"made up\"\n";
    head.to_owned() + &states.concat()
}

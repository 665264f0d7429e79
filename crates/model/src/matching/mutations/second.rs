//! The requests of a second run.

use std::collections::HashSet;

use manyways_unit::Random;

use super::{Asked, Parameters, Role, Sample, Template};

/// Returns the requests that a client would send when it runs again, and requests for objects that are
/// not in the recording; the same for each seed.
pub fn second_run(parameters: &Parameters, recorded: &[Sample], seed: u64) -> Vec<Asked> {
    let mut random = Random::for_purpose(seed, 3);
    // Seconds since 1970; a population's own clock differs by less than years.
    let now = 1_740_000_000 + parameters.later + random.up_to(1_000_000);
    let known: HashSet<String> =
        recorded.iter().map(|sample| sample.template.object_key()).collect();
    let mut asked: Vec<(u64, Asked)> = Vec::new();
    for (place, sample) in recorded.iter().enumerate() {
        let mut at = || place as u64 * 2 + random.up_to(parameters.displacement * 2);
        let place = at();
        let (again, other) = (at(), at());
        let ask = |random: &mut Random, template: &Template, object| Asked {
            rendered: vary(parameters, template, random, now).render(random.next_u64()),
            object,
        };
        if random.chance(parameters.skipped) {
            continue;
        }
        let object = Some(sample.object);
        asked.push((place, ask(&mut random, &sample.template, object)));
        if random.chance(parameters.asked_again) {
            asked.push((again + 40, ask(&mut random, &sample.template, object)));
        }
        if random.chance(parameters.other_objects)
            && let Some(template) = other_object(&sample.template, &known, &mut random, now)
        {
            asked.push((other, ask(&mut random, &template, None)));
        }
    }
    asked.sort_by_key(|(place, _)| *place);
    asked.into_iter().map(|(_, asked)| asked).collect()
}

/// Returns the same request with values of the second run.
fn vary(parameters: &Parameters, template: &Template, random: &mut Random, now: u64) -> Template {
    let mut varied = template.clone();
    varied.each_value(|value| {
        let share = match value.role {
            Role::Measured(_) | Role::Counter => parameters.remeasured,
            role if role.is_volatile() => parameters.redrawn,
            _ => 0.0,
        };
        if random.chance(share) {
            value.text = value.role.draw(random, now).unwrap_or_default();
        }
    });
    if random.chance(parameters.new_cookies) {
        for (_, value) in &mut varied.cookies {
            value.text = value.role.draw(random, now).unwrap_or_else(|| value.text.clone());
        }
    }
    if random.chance(parameters.no_cookies) {
        varied.cookies.clear();
    }
    if random.chance(parameters.reordered)
        && let Some(pairs) = &mut varied.query
    {
        for place in (1..pairs.len()).rev() {
            pairs.swap(place, random.up_to(place as u64) as usize);
        }
    }
    varied
}

/// Returns the request with one other value that names an object, if it has one, such that no
/// recorded request names the same.
fn other_object(
    template: &Template,
    known: &HashSet<String>,
    random: &mut Random,
    now: u64,
) -> Option<Template> {
    let mut other = template.clone();
    let mut count = 0;
    other.each_value(|value| count += u64::from(value.role.names_object()));
    let chosen = random.up_to(count.checked_sub(1)?);
    let mut place = 0;
    other.each_value(|value| {
        if !value.role.names_object() {
            return;
        }
        if place == chosen {
            // Neighbours are the easiest to confuse: often the next number.
            let next = value.text.parse::<u64>().ok().filter(|_| random.chance(0.5));
            value.text = match (next, value.role) {
                (Some(number), Role::Number(_)) => (number + 1).to_string(),
                _ => value.role.draw(random, now).unwrap_or_default(),
            };
        }
        place += 1;
    });
    (!known.contains(&other.object_key())).then_some(other)
}

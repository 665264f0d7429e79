/**
 * Plays a film with dash.js in an empty page, and records how it goes. `take()` of the returned object
 * returns what happened since the last call, as JSON. Times are in seconds since the player had the
 * manifest, positions in seconds of the film, rates in bit/s.
 */
function play(film) {
  "use strict";
  const { manifest, rates, end, buffer, throughput, bola, fixed, abandon } = film;
  const MAX_TAKEN = 1000;
  const MAX_TEXT = 300;
  const video = document.createElement("video");
  video.muted = true;
  document.body.append(video);

  let origin = null;
  let startup = null;
  let stall = null;
  let ended = null;
  let isCut = false;
  const [loads, stalls, errors] = [[], [], []];
  /** The latest download of each request of dash.js. */
  const latest = new WeakMap();

  const now = () => (origin === null ? 0 : (performance.now() - origin) / 1000);
  const level = () => {
    const ranges = video.buffered;
    for (let at = 0; at < ranges.length; at += 1) {
      if (ranges.start(at) <= video.currentTime + 0.1 && video.currentTime <= ranges.end(at)) {
        return ranges.end(at) - video.currentTime;
      }
    }
    return 0;
  };
  const fail = (text) => errors.push(String(text).slice(0, MAX_TEXT));
  const finish = () => (ended ??= now());

  video.addEventListener("playing", () => {
    startup ??= now();
    if (stall !== null) {
      stalls.push({ ...stall, duration: now() - stall.at });
      stall = null;
    }
  });
  video.addEventListener("waiting", () => {
    if (startup === null || video.ended || ended !== null) {
      return;
    }
    // The rest of the film is not of interest, and was not fetched.
    if (isCut && level() < 0.5) {
      finish();
    } else {
      stall ??= { at: now(), position: video.currentTime };
    }
  });
  video.addEventListener("ended", finish);
  video.addEventListener("error", () => fail(`the browser cannot play it: ${video.error?.message}`));

  const player = dashjs.MediaPlayer().create();
  const events = dashjs.MediaPlayer.events;

  player.addRequestInterceptor((sent) => {
    const request = sent.customData.request;
    const { type, startTime, duration, bandwidth } = request;
    const isMedia = type === "MediaSegment";
    // Nothing is fetched that will not be played: this request waits for ever.
    if (isMedia && startTime + duration / 2 >= end) {
      isCut = true;
      return new Promise(() => {});
    }
    latest.set(request, {
      is_media: isMedia,
      start: startTime,
      duration,
      rate: bandwidth,
      requested: now(),
      buffer: level(),
    });
    return Promise.resolve(sent);
  });
  player.addResponseInterceptor((response) => {
    const request = response.request.customData.request;
    const load = latest.get(request);
    if (load === undefined) {
      return Promise.resolve(response);
    }
    if (request.type === "MPD" && origin === null) {
      origin = performance.now();
      load.requested = 0;
    }
    const { data, status } = response;
    const received = (request.traces ?? []).reduce((sum, trace) => sum + (trace.b?.[0] ?? 0), 0);
    const latency = request.firstByteDate - request.startDate;
    load.complete = now();
    // A response that came in one piece has no other time.
    load.first_byte = latency > 0 ? load.requested + latency / 1000 : load.complete;
    load.bytes = data?.byteLength ?? data?.length ?? received;
    load.position = video.currentTime;
    load.status = status;
    load.outcome = status >= 200 && status < 300 && data ? "complete" : "failed";
    loads.push(load);
    return Promise.resolve(response);
  });
  // Comes after the response, before anything can be taken.
  player.on(events.FRAGMENT_LOADING_ABANDONED, ({ request }) => {
    const load = latest.get(request);
    if (load?.status === 0) {
      load.outcome = "abandoned";
    }
  });
  player.on(events.ERROR, ({ error }) => fail(error?.message ?? error));

  // The pictures only, and the same rungs as those of the film that the caller has read. One track is
  // left by that, so that there is no switch of tracks.
  player.registerCustomCapabilitiesFilter(
    ({ bandwidth, mimeType }) =>
      rates.includes(bandwidth) && !/^(audio|text|application|image)\//.test(mimeType ?? ""),
  );
  player.updateSettings({
    streaming: {
      abr: {
        rules: {
          throughputRule: { active: throughput },
          bolaRule: { active: bola },
          abandonRequestsRule: { active: abandon },
        },
        autoSwitchBitrate: { video: fixed === null },
        // In kbit/s.
        initialBitrate: { video: fixed === null ? -1 : fixed / 1000 },
        // These timings have no ranges: requests for one file would be confused. Those of other
        // origins are empty.
        throughput: { useResourceTimingApi: false },
      },
      buffer: {
        bufferTimeDefault: buffer,
        bufferTimeAtTopQuality: buffer,
        bufferTimeAtTopQualityLongForm: buffer,
      },
      // Each film begins as the first one does.
      lastBitrateCachingInfo: { enabled: false },
      lastMediaSettingsCachingInfo: { enabled: false },
      saveLastMediaSettingsForCurrentStreamingSession: false,
      // No data about the client in requests, as in those of our own player, and no requests for the
      // time of day. Everything else is as dash.js ships it, also the fast switch, which replaces
      // segments in the buffer by better ones.
      cmcd: { enabled: false, applyParametersFromMpd: false },
      utcSynchronization: { enabled: false },
    },
  });
  player.initialize(video, manifest, true);

  return {
    take() {
      if (ended === null && video.currentTime >= end - 0.05) {
        finish();
      }
      return JSON.stringify({
        now: now(),
        startup,
        position: video.currentTime,
        ended,
        loads: loads.splice(0, MAX_TAKEN),
        stalls: stalls.splice(0, MAX_TAKEN),
        stall: stall && { ...stall, duration: now() - stall.at },
        errors: errors.splice(0, MAX_TAKEN),
      });
    },
  };
}

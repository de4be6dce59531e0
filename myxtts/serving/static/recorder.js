// Hands the microphone's samples to the page, about ten times a second.
class Recorder extends AudioWorkletProcessor {
  constructor() {
    super();
    this.held = [];
    this.count = 0;
  }
  process([[samples]]) {
    if (samples) {
      this.held.push(samples.slice());
      this.count += samples.length;
    }
    if (this.count >= 4096) {
      const whole = new Float32Array(this.count);
      this.held.reduce((at, part) => (whole.set(part, at), at + part.length), 0);
      this.port.postMessage(whole);
      this.held = [];
      this.count = 0;
    }
    return true;
  }
}
registerProcessor("recorder", Recorder);

// A page that is opened from a file must not start a worker.  The search then runs in a hidden frame.
// The theme's plugin `offline` would load a script with this name from the internet instead.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inner = frame.contentWindow;
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.deliver = (data) => inner.dispatchEvent(new inner.MessageEvent("message", { data }));
      const script = inner.document.createElement("script");
      script.onload = () => {
        this.waiting.forEach(this.deliver);
        this.waiting = null;
      };
      script.src = url;
      inner.document.body.append(script);
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.deliver(data);
    }
  };
}

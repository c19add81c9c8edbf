// A camera's picture: the JPEG as recorded, or reduced by the server to the size on the screen.

import { el } from "./dom.js";

const WIDTHS = [320, 640, 960, 1280, 1920];

export class PictureView {
  static maxHz = 30;

  constructor(panel) {
    this.panel = panel;
    this.canvas = el("canvas", { class: "fit" });
    this.context = this.canvas.getContext("2d", { alpha: false });
    panel.body.append(this.canvas);
    this.resize();
  }

  get options() {
    return { width: this.width };
  }

  resize() {
    const needed = this.panel.body.clientWidth * (window.devicePixelRatio || 1);
    const width = WIDTHS.find((size) => size >= needed) ?? 0;
    if (width === this.width) return;
    this.width = width;
    this.panel.refresh();
  }

  async draw({ arrays, header }) {
    const bitmap = await createImageBitmap(new Blob([arrays.jpeg], { type: "image/jpeg" }));
    if (this.canvas.width !== bitmap.width || this.canvas.height !== bitmap.height)
      Object.assign(this.canvas, { width: bitmap.width, height: bitmap.height });
    this.context.drawImage(bitmap, 0, 0);
    bitmap.close();
    const [width, height] = header.shown;
    const reduced = width === header.width ? "" : ` (shown: ${width} × ${height})`;
    this.panel.note(`${header.width} × ${header.height}${reduced}`);
  }
}

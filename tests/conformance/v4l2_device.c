/* A capture device in user space, for LD_PRELOAD: answers the system calls on one path as the
 * kernel does, through the structures of the kernel's own header.
 *
 * V4L2_PATH names it; V4L2_FRAMES is a file of (u32 sequence, u32 size, bytes), one each 10 ms,
 * after which the device is unplugged.  An exposure begins 9 ms before its frame is there.  With
 * V4L2_PLANES the device is multi-planar: NV12M, whose luma is two thirds of a frame's bytes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/videodev2.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { BUFFERS = 3, SIZE = 1 << 20 };

static int planar, device = -1, gone, streaming, head, queued;
static int order[BUFFERS];
static uint32_t count, widths[] = {640, 64}, heights[] = {480, 48}, chosen;
static uint32_t interval = 30;
static int32_t values[] = {3, 156}; /* automatic exposure, exposure time */
static unsigned char *memory;
static FILE *frames;
static int64_t due;

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int fail(int number)
{
    errno = number;
    return -1;
}

static int opened(void)
{
    device = memfd_create("v4l2", 0);
    if (ftruncate(device, BUFFERS * SIZE))
        abort();
    memory = mmap(NULL, BUFFERS * SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, device, 0);
    frames = fopen(getenv("V4L2_FRAMES"), "rb");
    planar = getenv("V4L2_PLANES") != NULL;
    chosen = planar;
    return device;
}

#define OPEN(NAME)                                                         \
    int NAME(const char *path, int flags, ...)                             \
    {                                                                      \
        va_list rest;                                                      \
        va_start(rest, flags);                                             \
        int mode = va_arg(rest, int);                                      \
        va_end(rest);                                                      \
        int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, #NAME);     \
        const char *ours = getenv("V4L2_PATH");                            \
        if (ours == NULL || strcmp(path, ours))                            \
            return real(path, flags, mode);                                \
        if (!(flags & O_NONBLOCK) || (flags & O_ACCMODE) != O_RDWR)        \
            return fail(EINVAL);                                           \
        return opened();                                                   \
    }
OPEN(open)
OPEN(open64)

int close(int fd)
{
    int (*real)(int) = dlsym(RTLD_NEXT, "close");
    if (fd == device)
        device = -1;
    return real(fd);
}

static int polled(struct pollfd *fds, int timeout)
{
    int64_t wait = due - now(), most = timeout * 1000000LL;
    if (wait > most && !gone) {
        usleep(most / 1000);
        return fds->revents = 0;
    }
    if (wait > 0 && !gone)
        usleep(wait / 1000 + 1);
    fds->revents = gone ? POLLERR : POLLIN;
    return 1;
}

int poll(struct pollfd *fds, nfds_t n, int timeout)
{
    int (*real)(struct pollfd *, nfds_t, int) = dlsym(RTLD_NEXT, "poll");
    return n == 1 && fds->fd == device ? polled(fds, timeout) : real(fds, n, timeout);
}

int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t size)
{
    (void)size;
    return poll(fds, n, timeout);
}

static uint32_t kind(void)
{
    return planar ? V4L2_BUF_TYPE_VIDEO_CAPTURE_MPLANE : V4L2_BUF_TYPE_VIDEO_CAPTURE;
}

/* Whether the kernel would take the buffer: videobuf2's checks of type, memory and planes. */
static int valid(const struct v4l2_buffer *b)
{
    if (b->type != kind() || b->memory != V4L2_MEMORY_MMAP)
        return 0;
    return !planar || (b->m.planes != NULL && b->length >= 2 && b->length <= VIDEO_MAX_PLANES);
}

static int dequeue(struct v4l2_buffer *b)
{
    uint32_t header[2];
    if (!valid(b) || !streaming)
        return fail(EINVAL);
    if (now() < due || !queued)
        return fail(EAGAIN);
    if (fread(header, 4, 2, frames) != 2) {
        gone = 1;
        return fail(ENODEV);
    }
    b->index = order[head];
    head = (head + 1) % BUFFERS;
    queued--;
    unsigned char *place = memory + b->index * SIZE;
    uint32_t luma = planar ? header[1] / 3 * 2 : header[1];
    if (fread(place, 1, luma, frames) != luma)
        abort();
    if (fread(place + SIZE / 2, 1, header[1] - luma, frames) != header[1] - luma)
        abort();
    b->sequence = header[0];
    if (planar) {
        b->length = 2;
        for (int k = 0; k < 2; k++) {
            b->m.planes[k].bytesused = k ? header[1] - luma : luma;
            b->m.planes[k].length = SIZE / 2;
            b->m.planes[k].data_offset = 0;
        }
    } else {
        b->bytesused = header[1];
        b->length = SIZE;
    }
    b->flags = V4L2_BUF_FLAG_MAPPED | V4L2_BUF_FLAG_TIMESTAMP_MONOTONIC | V4L2_BUF_FLAG_TSTAMP_SRC_SOE;
    b->field = V4L2_FIELD_NONE;
    int64_t begun = due - 9000000;
    b->timestamp.tv_sec = begun / 1000000000;
    b->timestamp.tv_usec = begun % 1000000000 / 1000;
    due += 10000000;
    return 0;
}

static int control(struct v4l2_queryctrl *q)
{
    if ((q->id & ~V4L2_CTRL_FLAG_NEXT_CTRL) < V4L2_CID_EXPOSURE_AUTO) {
        q->id = V4L2_CID_EXPOSURE_AUTO;
        q->type = V4L2_CTRL_TYPE_MENU;
        strcpy((char *)q->name, "Auto Exposure");
        q->minimum = 0, q->maximum = 3;
    } else if ((q->id & ~V4L2_CTRL_FLAG_NEXT_CTRL) < V4L2_CID_EXPOSURE_ABSOLUTE) {
        q->id = V4L2_CID_EXPOSURE_ABSOLUTE;
        q->type = V4L2_CTRL_TYPE_INTEGER;
        strcpy((char *)q->name, "Exposure Time, Absolute");
        q->minimum = 1, q->maximum = 5000;
    } else
        return fail(EINVAL);
    q->flags = 0;
    return 0;
}

static int answer(unsigned long request, void *p)
{
    struct v4l2_capability *cap = p;
    struct v4l2_fmtdesc *d = p;
    struct v4l2_frmsizeenum *s = p;
    struct v4l2_format *f = p;
    struct v4l2_streamparm *parm = p;
    struct v4l2_requestbuffers *r = p;
    struct v4l2_buffer *b = p;
    struct v4l2_control *c = p;
    struct v4l2_querymenu *m = p;
    if (gone)
        return fail(ENODEV);
    switch (request) {
    case VIDIOC_QUERYCAP:
        strcpy((char *)cap->driver, "shim");
        strcpy((char *)cap->card, "Camera in user space");
        strcpy((char *)cap->bus_info, "memory");
        cap->device_caps = V4L2_CAP_STREAMING |
                           (planar ? V4L2_CAP_VIDEO_CAPTURE_MPLANE : V4L2_CAP_VIDEO_CAPTURE);
        cap->capabilities = V4L2_CAP_DEVICE_CAPS | cap->device_caps;
        return 0;
    case VIDIOC_ENUM_FMT:
        if (d->type != kind() || d->index > 1)
            return fail(EINVAL);
        d->pixelformat = d->index ? V4L2_PIX_FMT_MJPEG : V4L2_PIX_FMT_YUYV;
        if (planar)
            d->pixelformat = V4L2_PIX_FMT_NV12M;
        return 0;
    case VIDIOC_ENUM_FRAMESIZES:
        if (s->pixel_format != V4L2_PIX_FMT_MJPEG || s->index > 1)
            return fail(EINVAL);
        s->type = V4L2_FRMSIZE_TYPE_DISCRETE;
        s->discrete.width = widths[s->index];
        s->discrete.height = heights[s->index];
        return 0;
    case VIDIOC_S_FMT:
        if (!planar && f->fmt.pix.pixelformat != V4L2_PIX_FMT_MJPEG)
            return fail(EBUSY);
        chosen = planar || f->fmt.pix.width < 320;
        /* fall through */
    case VIDIOC_G_FMT:
        if (f->type != kind())
            return fail(EINVAL);
        if (planar) {
            f->fmt.pix_mp.width = widths[1];
            f->fmt.pix_mp.height = heights[1];
            f->fmt.pix_mp.pixelformat = V4L2_PIX_FMT_NV12M;
            f->fmt.pix_mp.num_planes = 2;
            f->fmt.pix_mp.plane_fmt[0].bytesperline = widths[1] + 16;
            f->fmt.pix_mp.plane_fmt[1].bytesperline = widths[1] + 16;
            return 0;
        }
        f->fmt.pix.width = widths[chosen];
        f->fmt.pix.height = heights[chosen];
        f->fmt.pix.pixelformat = V4L2_PIX_FMT_MJPEG;
        f->fmt.pix.field = V4L2_FIELD_NONE;
        f->fmt.pix.bytesperline = 0;
        f->fmt.pix.sizeimage = SIZE;
        return 0;
    case VIDIOC_S_PARM:
        interval = parm->parm.capture.timeperframe.denominator /
                   parm->parm.capture.timeperframe.numerator;
        /* fall through */
    case VIDIOC_G_PARM:
        parm->parm.capture.capability = V4L2_CAP_TIMEPERFRAME;
        parm->parm.capture.timeperframe.numerator = 1;
        parm->parm.capture.timeperframe.denominator = interval;
        return 0;
    case VIDIOC_QUERYCTRL:
        return control(p);
    case VIDIOC_QUERYMENU:
        if (m->id != V4L2_CID_EXPOSURE_AUTO || (m->index != 1 && m->index != 3))
            return fail(EINVAL);
        strcpy((char *)m->name, m->index == 1 ? "Manual Mode" : "Aperture Priority Mode");
        return 0;
    case VIDIOC_G_CTRL:
        c->value = values[c->id == V4L2_CID_EXPOSURE_ABSOLUTE];
        return 0;
    case VIDIOC_S_CTRL:
        if (c->id == V4L2_CID_EXPOSURE_ABSOLUTE && values[0] != 1)
            return fail(EACCES);
        values[c->id == V4L2_CID_EXPOSURE_ABSOLUTE] = c->value;
        return 0;
    case VIDIOC_REQBUFS:
        if (r->type != kind() || r->memory != V4L2_MEMORY_MMAP)
            return fail(EINVAL);
        count = r->count = r->count < BUFFERS ? r->count : BUFFERS;
        return 0;
    case VIDIOC_QUERYBUF:
        if (b->index >= count || !valid(b))
            return fail(EINVAL);
        if (planar) {
            b->length = 2;
            for (int k = 0; k < 2; k++) {
                b->m.planes[k].length = SIZE / 2;
                b->m.planes[k].m.mem_offset = b->index * SIZE + k * (SIZE / 2);
            }
            return 0;
        }
        b->length = SIZE;
        b->m.offset = b->index * SIZE;
        return 0;
    case VIDIOC_QBUF:
        if (b->index >= count || !valid(b) || queued == BUFFERS)
            return fail(EINVAL);
        memset(memory + b->index * SIZE, 0xEE, SIZE); /* it is the device's now */
        order[(head + queued++) % BUFFERS] = b->index;
        return 0;
    case VIDIOC_DQBUF:
        return dequeue(p);
    case VIDIOC_STREAMON:
    case VIDIOC_STREAMOFF:
        if (*(uint32_t *)p != kind())
            return fail(EINVAL);
        streaming = request == VIDIOC_STREAMON;
        due = now() + 10000000;
        return 0;
    }
    return fail(ENOTTY);
}

int ioctl(int fd, unsigned long request, ...)
{
    va_list rest;
    va_start(rest, request);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    int (*real)(int, unsigned long, ...) = dlsym(RTLD_NEXT, "ioctl");
    /* Request numbers are 32 bits; callers differ in how they extend the sign. */
    return fd == device ? answer(request & 0xFFFFFFFF, argument) : real(fd, request, argument);
}

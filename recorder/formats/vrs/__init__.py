"""VRS files (github.com/facebookresearch/vrs): writer, reader, layouts, RecordFormat strings.

The modules, from the bottom: `layout` (DataLayouts); `media`, `record_format`, `content` (blocks of
a record); `headers`, `scan`, `index`, `compression` (the file); `streams`, `reader`, `writer`. See
docs/vrs.md.
"""

from recorder.formats.vrs.chunks import split_vrs
from recorder.formats.vrs.compression import Compression, Compressor, find_compressor
from recorder.formats.vrs.content import DataBlock, LayoutBlock
from recorder.formats.vrs.headers import RecordType, StreamId
from recorder.formats.vrs.layout import (
    Array,
    DataLayout,
    Enum,
    LayoutSpec,
    Optional,
    String,
    StringMap,
    Struct,
    Value,
    Vector,
)
from recorder.formats.vrs.media import AudioSampleFormat, PixelFormat
from recorder.formats.vrs.reader import VrsReader, VrsRecord
from recorder.formats.vrs.record_format import (
    AudioContent,
    CustomContent,
    EmptyContent,
    ImageContent,
    RecordFormat,
)
from recorder.formats.vrs.streams import RecordableType, RecordLayout, StreamSpec, VrsStream
from recorder.formats.vrs.writer import (
    StreamWriter,
    VrsWriter,
    data_records,
    default_index_path,
    description_end,
    find_resume_point,
    rewrite_vrs,
    whole_records_end,
)

__all__ = [
    "Array",
    "AudioContent",
    "AudioSampleFormat",
    "Compression",
    "Compressor",
    "CustomContent",
    "DataBlock",
    "DataLayout",
    "EmptyContent",
    "Enum",
    "ImageContent",
    "LayoutBlock",
    "LayoutSpec",
    "Optional",
    "PixelFormat",
    "RecordFormat",
    "RecordLayout",
    "RecordType",
    "RecordableType",
    "StreamId",
    "StreamSpec",
    "StreamWriter",
    "String",
    "StringMap",
    "Struct",
    "Value",
    "Vector",
    "VrsReader",
    "VrsRecord",
    "VrsStream",
    "VrsWriter",
    "data_records",
    "default_index_path",
    "description_end",
    "find_compressor",
    "find_resume_point",
    "rewrite_vrs",
    "split_vrs",
    "whole_records_end",
]

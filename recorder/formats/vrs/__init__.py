"""VRS files (github.com/facebookresearch/vrs): writer, reader, layouts, RecordFormat strings.

The modules, from the bottom: `elements`, `pieces`, `layout_spec`, `layout` (DataLayouts); `media`,
`record_format`, `content` (blocks of a record); `headers`, `tags`, `index`,
`chunks`, `scan`, `compression` (the file); `streams`, `reader`, `writer`, `resume`. See
docs/vrs.md.
"""

from recorder.formats.vrs.compression import Compression, Compressor
from recorder.formats.vrs.content import DataBlock, LayoutBlock
from recorder.formats.vrs.headers import RecordType, StreamId
from recorder.formats.vrs.layout import (
    Array,
    DataLayout,
    Enum,
    Optional,
    String,
    StringMap,
    Struct,
    Value,
    Vector,
)
from recorder.formats.vrs.layout_spec import LayoutSpec
from recorder.formats.vrs.media import AudioSampleFormat, PixelFormat
from recorder.formats.vrs.reader import VrsReader, VrsRecord
from recorder.formats.vrs.record_format import (
    AudioContent,
    CustomContent,
    EmptyContent,
    ImageContent,
    RecordFormat,
)
from recorder.formats.vrs.recordables import RecordableType
from recorder.formats.vrs.resume import (
    data_records,
    description_end,
    find_resume_point,
    whole_records_end,
)
from recorder.formats.vrs.streams import RecordLayout, StreamSpec, VrsStream
from recorder.formats.vrs.writer import StreamWriter, VrsWriter, default_index_path, rewrite_vrs

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
    "find_resume_point",
    "rewrite_vrs",
    "whole_records_end",
]

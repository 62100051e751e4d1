//! One operator: its name, and its inputs and outputs as shapes and types.

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// `torch.complex128`.
    Complex128,
    /// `torch.complex64`.
    Complex64,
    /// `torch.complex32`.
    Complex32,
    /// `torch.float64`.
    Float64,
    /// `torch.float32`.
    Float32,
    /// `torch.float16`.
    Float16,
    /// `torch.bfloat16`.
    BFloat16,
    /// Any of the 8-bit floating-point types.
    Float8,
    /// `torch.int64` and `torch.uint64`.
    Int64,
    /// `torch.int32` and `torch.uint32`.
    Int32,
    /// `torch.int16` and `torch.uint16`.
    Int16,
    /// `torch.int8` and `torch.uint8`.
    Int8,
    /// `torch.bool`.
    Bool,
}

impl ElementType {
    /// Parses PyTorch's name without the module (`float16`), or the C++ name in profiler traces
    /// (`c10::Half`).
    pub fn from_name(name: &str) -> Option<ElementType> {
        Some(match name {
            "complex128" | "c10::complex<double>" => ElementType::Complex128,
            "complex64" | "c10::complex<float>" => ElementType::Complex64,
            "complex32" | "c10::complex<c10::Half>" => ElementType::Complex32,
            "float64" | "double" => ElementType::Float64,
            "float32" | "float" => ElementType::Float32,
            "float16" | "c10::Half" => ElementType::Float16,
            "bfloat16" | "c10::BFloat16" => ElementType::BFloat16,
            "int64" | "uint64" | "long" | "long int" | "long long" | "unsigned long" => {
                ElementType::Int64
            }
            "int32" | "uint32" | "int" | "unsigned int" => ElementType::Int32,
            "int16" | "uint16" | "short" | "short int" | "unsigned short" => ElementType::Int16,
            "int8" | "uint8" | "char" | "signed char" | "unsigned char" => ElementType::Int8,
            "bool" => ElementType::Bool,
            _ if name.starts_with("float8_") || name.starts_with("c10::Float8_") => {
                ElementType::Float8
            }
            _ => return None,
        })
    }

    /// Returns PyTorch's name without the module. Variants that are merged here have the name of
    /// the usual one.
    pub fn name(self) -> &'static str {
        match self {
            ElementType::Complex128 => "complex128",
            ElementType::Complex64 => "complex64",
            ElementType::Complex32 => "complex32",
            ElementType::Float64 => "float64",
            ElementType::Float32 => "float32",
            ElementType::Float16 => "float16",
            ElementType::BFloat16 => "bfloat16",
            ElementType::Float8 => "float8_e4m3fn",
            ElementType::Int64 => "int64",
            ElementType::Int32 => "int32",
            ElementType::Int16 => "int16",
            ElementType::Int8 => "int8",
            ElementType::Bool => "bool",
        }
    }

    /// Returns the size of an element in bytes.
    pub fn bytes(self) -> f64 {
        match self {
            ElementType::Complex128 => 16.0,
            ElementType::Complex64 | ElementType::Float64 | ElementType::Int64 => 8.0,
            ElementType::Complex32 | ElementType::Float32 | ElementType::Int32 => 4.0,
            ElementType::Float16 | ElementType::BFloat16 | ElementType::Int16 => 2.0,
            ElementType::Float8 | ElementType::Int8 | ElementType::Bool => 1.0,
        }
    }
}

/// A tensor, without its data.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tensor {
    /// Element type. `None` if its name is unknown or was not recorded.
    pub element: Option<ElementType>,
    /// Size of each dimension; empty for a scalar.
    pub shape: Vec<u64>,
    /// Stride of each dimension in elements. `None` if the tensor is contiguous.
    pub strides: Option<Vec<i64>>,
}

/// The maximum element count, which keeps sums and products of absurd shapes finite.
const MAX_ELEMENTS: f64 = 1e18;

impl Tensor {
    /// Creates a contiguous tensor.
    pub fn new(element: ElementType, shape: &[u64]) -> Tensor {
        Tensor { element: Some(element), shape: shape.to_vec(), strides: None }
    }

    /// Returns the number of elements, at most 1e18.
    pub fn elements(&self) -> f64 {
        elements(&self.shape)
    }

    /// Bytes of the distinct elements: a dimension with stride 0 reads the same memory repeatedly.
    /// Returns `None` if the type is unknown.
    pub fn bytes(&self) -> Option<f64> {
        let distinct = match &self.strides {
            Some(strides) => self
                .shape
                .iter()
                .zip(strides)
                .filter(|(size, stride)| **stride != 0 || **size == 0)
                .map(|(size, _)| *size as f64)
                .product::<f64>()
                .min(MAX_ELEMENTS),
            None => self.elements(),
        };
        Some(distinct * self.element?.bytes())
    }

    /// Whether the channels (dimension 1 of 4 or 5) are contiguous in memory.
    pub fn is_channels_last(&self) -> bool {
        let (Some(strides), 4 | 5) = (&self.strides, self.shape.len()) else { return false };
        let channels = self.shape.get(1).copied().unwrap_or(0);
        strides.get(1) == Some(&1)
            && strides.last().is_some_and(|last| *last > 0 && *last as u64 == channels)
    }
}

/// Returns the number of elements of a shape, at most 1e18.
pub fn elements(shape: &[u64]) -> f64 {
    shape.iter().map(|size| *size as f64).product::<f64>().min(MAX_ELEMENTS)
}

/// An operator's argument.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    /// Omitted, or not recorded.
    None,
    /// A flag.
    Bool(bool),
    /// An integer or a real number.
    Number(f64),
    /// A string, such as the padding mode `same`.
    Text(String),
    /// A tensor.
    Tensor(Tensor),
    /// A list, of tensors or of numbers.
    List(Vec<Arg>),
}

/// One operator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Operator {
    /// Name with namespace, and with the overload after a dot if it is not the default:
    /// `aten::add.Scalar`.
    pub name: String,
    /// Positional arguments.
    pub inputs: Vec<Arg>,
    /// Keyword arguments.
    pub named: Vec<(String, Arg)>,
    /// Output tensors, with lists flattened. Empty if unknown.
    pub outputs: Vec<Tensor>,
}

impl Operator {
    /// Creates an operator with positional arguments only.
    pub fn new(name: &str, inputs: Vec<Arg>, outputs: Vec<Tensor>) -> Operator {
        Operator { name: name.to_owned(), inputs, named: Vec::new(), outputs }
    }

    /// Parses an operator from a profiler trace: the JSON strings of `Input Dims`, `Input type` and
    /// `Concrete Inputs`. The profiler does not record outputs. They are inferred for known
    /// operators. Returns `None` if the strings are malformed or have no shapes.
    pub fn from_trace(name: &str, dims: &str, types: &str, concrete: &str) -> Option<Operator> {
        super::trace_operator::read(name, dims, types, concrete)
    }

    /// Returns the name without namespace and overload, or `None` for operators that are not
    /// PyTorch's own.
    pub fn base_name(&self) -> Option<&str> {
        let name =
            self.name.strip_prefix("aten::").or_else(|| self.name.strip_prefix("prims::"))?;
        Some(name.split_once('.').map_or(name, |(base, _)| base))
    }

    /// Returns the overload: `Scalar` for `aten::add.Scalar`, empty for the default.
    pub fn overload(&self) -> &str {
        let name = self.name.split_once("::").map_or(self.name.as_str(), |(_, name)| name);
        name.split_once('.').map_or("", |(_, overload)| overload)
    }

    /// Returns the argument at a position.
    pub fn input(&self, index: usize) -> &Arg {
        self.inputs.get(index).unwrap_or(&Arg::None)
    }

    /// Returns the argument at a position or, if it is missing, by name.
    pub fn argument(&self, index: usize, name: &str) -> &Arg {
        match self.input(index) {
            Arg::None => {
                self.named.iter().find(|(key, _)| key == name).map_or(&Arg::None, |(_, arg)| arg)
            }
            arg => arg,
        }
    }

    /// Returns the tensor at a position.
    pub fn tensor(&self, index: usize) -> Option<&Tensor> {
        match self.input(index) {
            Arg::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// Returns the shape of the tensor at a position.
    pub fn shape(&self, index: usize) -> Option<&[u64]> {
        self.tensor(index).map(|tensor| tensor.shape.as_slice())
    }

    /// Returns all input tensors, including those in lists and keyword arguments.
    pub fn input_tensors(&self) -> impl Iterator<Item = &Tensor> {
        let named = self.named.iter().map(|(_, arg)| arg);
        self.inputs.iter().chain(named).flat_map(Arg::tensors)
    }

    /// Returns the element type of the first input or output that has one.
    pub fn element(&self) -> Option<ElementType> {
        self.input_tensors().chain(&self.outputs).find_map(|tensor| tensor.element)
    }
}

impl Arg {
    /// Returns the tensor or, for a list, its tensors. Nested lists contain no tensors in PyTorch.
    pub fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        let list = match self {
            Arg::List(list) => list.as_slice(),
            other => std::slice::from_ref(other),
        };
        list.iter().filter_map(|arg| match arg {
            Arg::Tensor(tensor) => Some(tensor),
            _ => None,
        })
    }

    /// Returns the value of a flag.
    pub fn flag(&self) -> Option<bool> {
        match self {
            Arg::Bool(flag) => Some(*flag),
            _ => None,
        }
    }

    /// Returns the flag of one output, from a list or from a flag for all outputs.
    pub fn flag_of(&self, index: usize) -> Option<bool> {
        match self {
            Arg::Bool(flag) => Some(*flag),
            Arg::List(list) => list.get(index)?.flag(),
            _ => None,
        }
    }

    /// Returns the value of a number.
    pub fn number(&self) -> Option<f64> {
        match self {
            Arg::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns the number of one dimension, from a list or from a number for all dimensions.
    pub fn number_of(&self, dimension: usize) -> Option<f64> {
        match self {
            Arg::Number(number) => Some(*number),
            Arg::List(list) => match list.as_slice() {
                [one] => one.number(),
                list => list.get(dimension)?.number(),
            },
            _ => None,
        }
    }
}

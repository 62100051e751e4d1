//! One operator: its name, what it takes and what it gives, as shapes and types.

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
    /// By PyTorch's name without the module (`float16`), or by the C++ name that the profiler
    /// writes (`c10::Half`).
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

    /// PyTorch's name without the module. Of types that are one here, the usual one.
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

    /// Bytes of an element.
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
    /// `None` where the type has a name that is not known, or was not recorded.
    pub element: Option<ElementType>,
    /// Elements by dimension; empty for a scalar.
    pub shape: Vec<u64>,
    /// Elements to the next by dimension, where it is not contiguous.
    pub strides: Option<Vec<i64>>,
}

/// Counts are held to this, so that sums and products of absurd shapes stay finite.
const MOST_ELEMENTS: f64 = 1e18;

impl Tensor {
    /// A contiguous tensor.
    pub fn new(element: ElementType, shape: &[u64]) -> Tensor {
        Tensor { element: Some(element), shape: shape.to_vec(), strides: None }
    }

    /// The number of elements, at most 1e18.
    pub fn elements(&self) -> f64 {
        elements(&self.shape)
    }

    /// Bytes of its elements, each once: a dimension with stride 0 is read again and again from
    /// the same place. Nothing where the type is not known.
    pub fn bytes(&self) -> Option<f64> {
        let distinct = match &self.strides {
            Some(strides) => self
                .shape
                .iter()
                .zip(strides)
                .filter(|(size, stride)| **stride != 0 || **size == 0)
                .map(|(size, _)| *size as f64)
                .product::<f64>()
                .min(MOST_ELEMENTS),
            None => self.elements(),
        };
        Some(distinct * self.element?.bytes())
    }

    /// Whether its channels (dimension 1 of 4 or 5) lie next to each other in memory.
    pub fn is_channels_last(&self) -> bool {
        let (Some(strides), 4 | 5) = (&self.strides, self.shape.len()) else { return false };
        let channels = self.shape.get(1).copied().unwrap_or(0);
        strides.get(1) == Some(&1)
            && strides.last().is_some_and(|last| *last > 0 && *last as u64 == channels)
    }
}

/// The number of elements of a shape, at most 1e18.
pub fn elements(shape: &[u64]) -> f64 {
    shape.iter().map(|size| *size as f64).product::<f64>().min(MOST_ELEMENTS)
}

/// What an operator takes.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    /// Left out, or not recorded.
    None,
    /// A flag.
    Bool(bool),
    /// An integer or a real number.
    Number(f64),
    /// A name, such as `same` for a padding.
    Text(String),
    /// A tensor.
    Tensor(Tensor),
    /// A list, of tensors or of numbers.
    List(Vec<Arg>),
}

/// One operator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Operator {
    /// With its namespace, and its overload after a dot where that is not the default:
    /// `aten::add.Scalar`.
    pub name: String,
    /// By position.
    pub inputs: Vec<Arg>,
    /// By name.
    pub named: Vec<(String, Arg)>,
    /// The tensors that it gives, lists flattened. Empty where they are not known.
    pub outputs: Vec<Tensor>,
}

impl Operator {
    /// An operator that takes arguments by position alone.
    pub fn new(name: &str, inputs: Vec<Arg>, outputs: Vec<Tensor>) -> Operator {
        Operator { name: name.to_owned(), inputs, named: Vec::new(), outputs }
    }

    /// An operator as the profiler writes it: the JSON texts of `Input Dims`, `Input type` and
    /// `Concrete Inputs`. What it gives was not recorded and is worked out for operators that are
    /// known. `None` where the texts are not what the profiler writes, or hold no shapes.
    pub fn from_trace(name: &str, dims: &str, types: &str, concrete: &str) -> Option<Operator> {
        super::trace_operator::read(name, dims, types, concrete)
    }

    /// The name without namespace and overload; `None` for operators that are not PyTorch's own.
    pub fn base_name(&self) -> Option<&str> {
        let name =
            self.name.strip_prefix("aten::").or_else(|| self.name.strip_prefix("prims::"))?;
        Some(name.split_once('.').map_or(name, |(base, _)| base))
    }

    /// The overload: `Scalar` of `aten::add.Scalar`, empty for the default.
    pub fn overload(&self) -> &str {
        let name = self.name.split_once("::").map_or(self.name.as_str(), |(_, name)| name);
        name.split_once('.').map_or("", |(_, overload)| overload)
    }

    /// The argument at a position.
    pub fn input(&self, index: usize) -> &Arg {
        self.inputs.get(index).unwrap_or(&Arg::None)
    }

    /// The argument at a position or, where that is not there, by name.
    pub fn argument(&self, index: usize, name: &str) -> &Arg {
        match self.input(index) {
            Arg::None => {
                self.named.iter().find(|(key, _)| key == name).map_or(&Arg::None, |(_, arg)| arg)
            }
            arg => arg,
        }
    }

    /// The tensor at a position.
    pub fn tensor(&self, index: usize) -> Option<&Tensor> {
        match self.input(index) {
            Arg::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// The shape of the tensor at a position.
    pub fn shape(&self, index: usize) -> Option<&[u64]> {
        self.tensor(index).map(|tensor| tensor.shape.as_slice())
    }

    /// All tensors that it takes, those of lists and those given by name among them.
    pub fn input_tensors(&self) -> impl Iterator<Item = &Tensor> {
        let named = self.named.iter().map(|(_, arg)| arg);
        self.inputs.iter().chain(named).flat_map(Arg::tensors)
    }

    /// The type of the first tensor that it takes or gives.
    pub fn element(&self) -> Option<ElementType> {
        self.input_tensors().chain(&self.outputs).find_map(|tensor| tensor.element)
    }
}

impl Arg {
    /// The tensor or, for a list, its tensors. Lists within lists hold none in PyTorch.
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

    /// A flag's value.
    pub fn flag(&self) -> Option<bool> {
        match self {
            Arg::Bool(flag) => Some(*flag),
            _ => None,
        }
    }

    /// A flag for an output: of a list, or one that holds for all.
    pub fn flag_of(&self, index: usize) -> Option<bool> {
        match self {
            Arg::Bool(flag) => Some(*flag),
            Arg::List(list) => list.get(index)?.flag(),
            _ => None,
        }
    }

    /// A number's value.
    pub fn number(&self) -> Option<f64> {
        match self {
            Arg::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// A number for a dimension: of a list, or one that holds for every dimension.
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

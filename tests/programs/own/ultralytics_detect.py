from ultralytics import YOLO

model = YOLO("yolov8n.yaml")
model.train(data="data.yaml", epochs=5, imgsz=64, batch=8, workers=0, plots=False)

from ultralytics import YOLO

model = YOLO("yolov8n.yaml")
model.train(data="boxes.yaml", epochs=10, batch=8)  # top
